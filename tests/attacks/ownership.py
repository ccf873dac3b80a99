"""Several processes that want one run at once, on one machine and on two: never do two of them have
it."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from attacks.attack import Attack
from attacks.kills import CACHE, run_state
from attacks.nursery import Nursery
from attacks.small import training
from canary.runs import lock

WRITE = 90  # after the second checkpoint
CLAIM = """
import socket, sys, time
from pathlib import Path
socket.gethostname = lambda: sys.argv[2]
from canary.runs import lock
time.sleep(float(sys.argv[3]))
try:
    held = lock.acquire(Path(sys.argv[1]))
except lock.CanaryError as error:
    print("refused" if "is being trained by" in str(error) else error, flush=True)
else:
    print("held", flush=True)
    sys.stdin.readline()
    held.release()
"""


class Claims(Attack):
    """Four processes, on two machines by their names, reach for one run within a tenth of a
    second."""

    name, tries = "claims on one run", 20

    def prepare(self, folder: Path) -> None:
        self._run = folder

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        hosts = ["here", "here", "there", "there"] if number % 2 else ["here"] * 4
        claims = [
            subprocess.Popen(
                [sys.executable, "-c", CLAIM, str(self._run), host, str(random.uniform(0, 0.1))],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for host in hosts
        ]  # fmt: skip
        said = [claim.stdout.readline().strip() for claim in claims if claim.stdout is not None]
        for claim in claims:
            claim.communicate("\n")
        if said.count("held") != 1 or set(said) - {"held", "refused"}:
            return f"{said}"
        return "the lock was left behind" if (self._run / lock.NAME).exists() else None


MODES = {
    "on one machine": ({"host": "here"}, {"host": "here"}),
    "on two machines": ({"host": "here"}, {"host": "there"}),
    "on two machines that see no locks of each other": (
        {"host": "here", "blind": True},
        {"host": "there", "blind": True},
    ),
}


class Resumes(Attack):
    """Two processes go on with one stopped run at once: one trains, and the other says why it does
    not."""

    name, tries = "resumed twice at once", 4 * len(MODES)

    def prepare(self, folder: Path) -> None:
        self._folder, self._nursery = folder, Nursery(CACHE)
        (folder / "runs").mkdir()
        ended = self._nursery.run({"arguments": training(folder / "whole")})
        stopped = self._nursery.run({"arguments": training(folder / "stopped"), "write": WRITE})
        assert (ended[0]["code"], stopped[0]["code"]) == (0, -9), (ended, stopped)
        (self._whole,), (self._stopped,) = (
            (folder / "whole").iterdir(),
            (folder / "stopped").iterdir(),
        )

    def close(self) -> None:
        self._nursery.close()

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        mode = list(MODES)[number % len(MODES)]
        run = shutil.copytree(self._stopped, self._folder / "runs" / str(number))
        (run / lock.NAME).unlink(missing_ok=True)
        arguments = ["train", "--resume", str(run), "--quiet"]
        ended = self._nursery.run(*({"arguments": arguments} | how for how in MODES[mode]))
        said = [one["said"] for one in ended if one["code"] != 0]
        # Where the first had finished before the second began, the second had nothing to do.
        good = len(said) <= 1 and all(
            "is being trained by" in text or "was taken over by" in text for text in said
        )
        if not good or run_state(run) != run_state(self._whole):
            return f"{mode}: {ended}"
        return "the lock was left behind" if (run / lock.NAME).exists() else None


ATTACKS = [Claims(), Resumes()]
