"""Several processes that want one run at once, on one machine and on two: never do two of them have it."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from attacks.attack import Attack
from canary.runs import lock

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
    """Four processes, on two machines by their names, reach for one run within a tenth of a second."""

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


ATTACKS = [Claims()]
