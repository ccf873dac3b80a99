"""From the arrays of a chunk to the rows of a run's tables and of the live display."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from canary.constraints import Constraint
from canary.numerics.tiers import Tier
from canary.reporting.diagnosis import SeedSeries, diagnose, joined, seed_series
from canary.terminal.progress import SeedStatus
from canary.types import EpisodeEnds

RECENT_EPISODES = 1000  # that the live display shows
RECENT_UPDATES = 50
# Averaged over this many updates of a chunk.
AVERAGED = {"entropy": 5, "kl_fraction": 5, "signal_fraction": RECENT_UPDATES}

Metrics = dict[str, np.ndarray]


def metrics_frame(metrics: Metrics, seeds: Sequence[int], first: int, batch: int) -> pl.DataFrame:
    """One row per seed and iteration from arrays [seed, iteration]."""
    count = next(iter(metrics.values())).shape[1]
    iteration = np.tile(np.arange(first, first + count), len(seeds))
    columns = {
        "seed": np.repeat(np.asarray(seeds, np.int32), count),
        "iteration": iteration.astype(np.int32),
        "steps": (iteration + 1).astype(np.int64) * batch,
    }
    return pl.DataFrame(columns | {name: value.reshape(-1) for name, value in metrics.items()})


def episodes_frame(ends: EpisodeEnds, seeds: Sequence[int], first: int) -> pl.DataFrame:
    """One row per episode that ended, in order of time, from arrays [seed, iteration, time,
    environment]."""
    seed, iteration, _, environment = where = np.nonzero(np.asarray(ends.ended))
    return pl.DataFrame(
        {
            "seed": np.asarray(seeds, np.int32)[seed],
            "iteration": (first + iteration).astype(np.int32),
            "environment": environment.astype(np.int32),
            "return": np.asarray(ends.reward)[where],
            "cost": np.asarray(ends.cost)[where],
            "length": np.asarray(ends.length)[where],
            "terminated": np.asarray(ends.terminated)[where],
            "valid": np.asarray(ends.valid)[where],
        }
    )


@dataclass
class RecentSeed:
    """What the live display remembers of one seed."""

    costs: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_EPISODES))
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_EPISODES))
    tiers: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_UPDATES))
    entropy: float = float("nan")
    kl_fraction: float = float("nan")
    signal_fraction: float = float("nan")
    series: SeedSeries | None = None


class RecentHistory:
    """The recent updates of every seed, for the live display only."""

    def __init__(self, seeds: Sequence[int], constraint: Constraint):
        self._seeds = {seed: RecentSeed() for seed in seeds}
        self._constraint = constraint

    def add(self, metrics: Metrics, rows: pl.DataFrame, episodes: pl.DataFrame) -> None:
        """A chunk: its metrics as arrays and as rows, and its episodes."""
        for index, (seed, memory) in enumerate(self._seeds.items()):
            memory.series = joined(memory.series, seed_series(rows, episodes, seed))
            own = episodes.filter((pl.col("seed") == seed) & pl.col("valid"))
            memory.costs.extend(own["cost"])
            memory.returns.extend(own["return"])
            if "tier" in metrics:
                memory.tiers.extend(int(tier) for tier in metrics["tier"][index])
            for name, updates in AVERAGED.items():
                if name in metrics:
                    setattr(memory, name, float(metrics[name][index, -updates:].mean()))

    def status(self) -> list[SeedStatus]:
        return [self._one(seed, memory) for seed, memory in self._seeds.items()]

    def _one(self, seed: int, memory: RecentSeed) -> SeedStatus:
        tiers = list(memory.tiers)
        return SeedStatus(
            seed=seed,
            return_mean=float(np.mean(memory.returns)) if memory.returns else float("nan"),
            costs=tuple(memory.costs),
            tier_share={
                tier.label: tiers.count(tier) / len(tiers) for tier in Tier if tier in tiers
            },
            entropy=memory.entropy,
            kl_fraction=memory.kl_fraction,
            signal_fraction=memory.signal_fraction,
            warning=None if memory.series is None else diagnose(memory.series, self._constraint),
        )
