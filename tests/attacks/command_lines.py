"""Wrong command lines, drawn from a grammar of the options: each ends in one sentence and exit code
2."""

import contextlib
import io
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from attacks.attack import Attack
from canary.cli.main import COMMANDS, main
from runs.untrained_runs import untrained_run

WORDS = (
    "", " ", "nan", "inf", "-inf", "1e300", "1e-300", "-1", "0", "9" * 30, "9" * 5000, "1.5.2", "0x10", "٣", "a\0b", "x" * 300,
    "[" * 3000, "{}", "[]", "null", "true", "--", "-", "=", "==", "a=b=c", "algo.", ".=1", "algo.hidden=[", "env.slip=much",
    "training.seeds=[]", "constraint.limit=nan", "../..", "/dev/null", "/dev/full/x", "/proc/self/mem", "~", "*", "%s%n",
    "\x1b[2J", "[/b]", "[red]x", "latest", "slip=0.1,,", "slip=", "=0.1", "slip=1e400", "\ud800", "0-", "-0", "3,3", "1-0",
)  # fmt: skip
NEVER = {"--help", "-h"}
MISTAKES: dict[str, tuple[list[str], ...]] = {
    "train": (["--limit", "nan"],),
    "bench": (["--updates", "none"],),
    "reproduce": (["no-such-study"], ["table1", "--only", "no-such-variant"], ["table1", "--steps", "many"], ["--rebuild"]),
    "sweep": (["--set", "algo.nothing=1,2"], ["--set", "algo.hidden=["], ["--steps", "many"], ["--env", "nowhere:Shop"]),
    "report": (["no-such-run"], ["--out", "."], ["--results", "nowhere", "table1"]),
    "check-env": (
        ["nowhere:Shop"], ["IcyLake", "--set", "env.nothing=1"], ["IcyLake", "--episodes", "many"], ["gymnasium:Nothing-v0"],
    ),
    "frontier": (["--run", "no-such-run"], ["--set", "env.nothing=1"], ["--limit", "nan"], ["--env", "EcoAnt"]),
}  # fmt: skip
"""Of commands that would be slow if the line were right: one of these ends it, most of them behind
the parser."""


class CommandLines(Attack):
    """A command, and one to four options or stray words, of which one at least is wrong."""

    name, tries = "wrong command lines", 1000

    def prepare(self, folder: Path) -> None:
        self._folder = folder / "empty"
        self._folder.mkdir()
        self._run = str(untrained_run(folder / "runs"))

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        line = self._line(random)
        before, out, err = os.getcwd(), io.StringIO(), io.StringIO()
        os.chdir(self._folder)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(line)
        except BaseException as error:
            return f"{line!r:.200}: {type(error).__name__}: {error!s:.100}"
        finally:
            os.chdir(before)
        said = err.getvalue()
        if code not in (0, 1, 2) or "Traceback" in said or (code == 2 and said.count("\n") != 1):
            return f"{line!r:.200}: exit code {code}: {said[:300]}"
        return None

    def _line(self, random: np.random.Generator) -> list[str]:
        """Commands that would be slow get one of their `MISTAKES` always."""

        def pick(options: Any) -> Any:
            return options[int(random.integers(len(options)))]

        name = pick([*COMMANDS, "trian", "", "--verison"])
        if name not in COMMANDS:
            return [name, pick(WORDS)]
        options = [field for field in fields(COMMANDS[name][0]) if field.name != "what"]
        flags = {f"--{field.name.replace('_', '-')}": field.default is False for field in options}
        line = [name]
        if name in ("evaluate", "certify", "export") and random.random() < 0.5:
            line += [self._run, "--episodes" if name != "export" else "--seed", pick(WORDS)]
        for _ in range(int(random.integers(1, 4))):
            word, flag = pick(WORDS) if random.random() < 0.8 else pick([*flags]), pick([*flags])
            # A switch, and nothing behind it
            is_well_formed = flags[flag] and random.random() < 0.7
            line += [flag] if is_well_formed else [flag, word] if random.random() < 0.9 else [word]
        mistake = pick(MISTAKES.get(name, ([],)))
        return [word for word in line if word not in NEVER and word != "--"] + mistake


ATTACKS = [CommandLines()]
