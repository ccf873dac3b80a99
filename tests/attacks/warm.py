"""Commands in this process, with programs that are traced and compiled once for all of them."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from matplotlib.figure import Figure

from canary.certification import run
from canary.certification.certify import Subject, make_player
from canary.checking import check as checking
from canary.checking.probe import make_probe
from canary.cli.main import main
from canary.reporting import figures
from canary.runs import building
from canary.runs.seeds import SeedGroups


class Said(NamedTuple):
    code: int
    out: str
    err: str


def canary(*arguments: str, folder: Path | None = None) -> Said:
    """A command in this process: its exit code and what it printed."""
    before, out, err = os.getcwd(), io.StringIO(), io.StringIO()
    os.chdir(before if folder is None else folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return Said(main(list(arguments)), out.getvalue(), err.getvalue())
    finally:
        os.chdir(before)


class WarmGroups(SeedGroups):
    """Seeds that share the programs of others of the same shape; `algorithm` stands for what their
    update is."""

    _known: ClassVar[dict[Any, tuple[Any, Any, dict]]] = {}
    algorithm: str = ""

    def __init__(
        self, trainer: Any, terms: Any, seeds: tuple[int, ...], per_device: int, size: int
    ):
        super().__init__(trainer, terms, seeds, per_device, size)
        shape = (
            self.algorithm,
            trainer.environment,
            trainer.environments,
            trainer.rollout_length,
            seeds,
            size,
        )
        mine = (self._init, self._chunk, self._programs)
        self._init, self._chunk, self._programs = self._known.setdefault(shape, mine)

    def compile(self) -> None:
        shared = self._programs
        if not shared:
            super().compile()
            shared.update(self._programs)
            self._programs = shared


@contextmanager
def warm(algorithm: str) -> Iterator[None]:
    """Runs and certificates inside share their programs; one algorithm, with one set of settings,
    at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WarmGroups, "algorithm", algorithm)
        patch.setattr(building, "SeedGroups", WarmGroups)
        patch.setattr(run, "make_player", _remembered(make_player))
        patch.setattr(checking, "make_probe", _probe)
        # It takes longer than the training
        patch.setattr(figures, "training_figure", lambda *_, **__: Figure((1, 1)))
        yield


_probe = lru_cache(make_probe)
_players: dict[Any, Any] = {}


def _remembered(make: Callable[..., Any]) -> Callable[..., Any]:
    """The player of the same environment, account and batch: what is certified about it is no part
    of the program."""

    def player(subject: Subject, plan: Any) -> Any:
        key = (subject.environment, subject.account, plan.batch, plan.deterministic)
        if key not in _players:
            _players[key] = make(subject, plan)
        return _players[key]

    return player
