"""Runs in this process that share their programs, which are traced and compiled once for all."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ClassVar

import pytest
from matplotlib.figure import Figure

from canary.checking import record
from canary.reporting import figures
from canary.runs import seeds
from canary.runs.seeds import SeedGroups


class WarmGroups(SeedGroups):
    """Seeds that share the programs of others of the same shape; `algorithm` stands for what their
    update is."""

    _known: ClassVar[dict[Any, Any]] = {}
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
        self._training = self._known.setdefault(shape, self._training)


@contextmanager
def warm(algorithm: str) -> Iterator[None]:
    """Runs inside share their programs; one algorithm, with one set of settings, at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WarmGroups, "algorithm", algorithm)
        patch.setattr(seeds, "SeedGroups", WarmGroups)
        patch.setattr(record, "Recorder", _recorder)
        # It takes longer than the training
        patch.setattr(figures, "training_figure", lambda *_, **__: Figure((1, 1)))
        yield


_recorder = lru_cache(record.Recorder)
