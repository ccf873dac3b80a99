"""Runs in this process that share their programs, which are traced and compiled once for all."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, ClassVar

import pytest
from matplotlib.figure import Figure

from canary.checking import record
from canary.constraints import parts_of
from canary.reporting import figures
from canary.runs import seeds
from canary.runs.seeds import SeedGroups


class WarmGroups(SeedGroups):
    """Seeds that share the programs of others with the same settings."""

    _known: ClassVar[dict[str, Any]] = {}
    kind = ""

    def __init__(self, config: Any, trainer: Any = None):
        super().__init__(config, trainer)
        limits = [part.kind for part in parts_of(config.constraint)]
        names = "environments", "rollout_length", "chunk", "merge_capacity"
        sizes = [getattr(config.training, name) for name in names]
        settings = f"{self.kind} {config.algorithm} {config.environment} {limits} {sizes}"
        self.training = self._known.setdefault(settings, self.training)


@contextmanager
def warm(kind: str = "") -> Iterator[None]:
    """Runs inside share their programs, which are compiled in one `kind` of way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WarmGroups, "kind", kind)
        patch.setattr(seeds, "SeedGroups", WarmGroups)
        patch.setattr(record, "Recorder", _recorder)
        # It takes longer than the training
        patch.setattr(figures, "training_figure", lambda *_, **__: Figure((1, 1)))
        yield


_recorder = lru_cache(record.Recorder)
