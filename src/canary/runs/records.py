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

# The live display shows the fewest recent updates with ENOUGH_EPISODES. It looks back FEW_UPDATES,
# and up to RECENT_UPDATES where fewer than FEW_EPISODES ended in those.
ENOUGH_EPISODES, FEW_EPISODES = 200, 20
FEW_UPDATES, RECENT_UPDATES = 10, 50
# Averaged over this many updates of a chunk.
AVERAGED = {"entropy": 5, "kl_fraction": 5, "multiplier": 5, "constraint_level": 5}

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

    batches: deque[pl.DataFrame] = field(default_factory=lambda: deque(maxlen=RECENT_UPDATES))
    """The episodes of each update, the newest last."""
    tiers: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_UPDATES))
    entropy: float = float("nan")
    kl_fraction: float = float("nan")
    multiplier: float = float("nan")
    constraint_level: float = float("nan")
    series: SeedSeries | None = None

    def recent(self) -> list[pl.DataFrame]:
        """The episodes of the updates that are shown."""
        shown, count = [], 0
        for batch in reversed(self.batches):
            is_long = len(shown) >= FEW_UPDATES and count >= FEW_EPISODES
            if count >= ENOUGH_EPISODES or is_long:
                break
            shown.append(batch)
            count += len(batch)
        return shown


class RecentHistory:
    """The recent updates of every seed, for the live display only."""

    def __init__(
        self, seeds: Sequence[int], constraint: Constraint, dead_zone: float | None = None
    ):
        self._seeds = {seed: RecentSeed() for seed in seeds}
        self._constraint, self._dead_zone = constraint, dead_zone

    def add(self, metrics: Metrics, rows: pl.DataFrame, episodes: pl.DataFrame) -> None:
        """A chunk: its metrics as arrays and as rows, and its episodes."""
        for index, (seed, memory) in enumerate(self._seeds.items()):
            memory.series = joined(memory.series, seed_series(rows, episodes, seed))
            own = episodes.filter((pl.col("seed") == seed) & pl.col("valid"))
            for update in rows.filter(pl.col("seed") == seed)["iteration"].sort():
                memory.batches.append(own.filter(pl.col("iteration") == update))
            if "tier" in metrics:
                memory.tiers.extend(int(tier) for tier in metrics["tier"][index])
            for name, updates in AVERAGED.items():
                if name in metrics:
                    setattr(memory, name, float(metrics[name][index, -updates:].mean()))

    def status(self) -> list[SeedStatus]:
        return [self._one(seed, memory) for seed, memory in self._seeds.items()]

    def _one(self, seed: int, memory: RecentSeed) -> SeedStatus:
        tiers, recent = list(memory.tiers), memory.recent()
        returns = [value for batch in recent for value in batch["return"]]
        return SeedStatus(
            seed=seed,
            return_mean=float(np.mean(returns)) if returns else float("nan"),
            costs=[cost for batch in recent for cost in batch["cost"].to_list()],
            updates=len(recent),
            tier_share={
                tier.label: tiers.count(tier) / len(tiers) for tier in Tier if tier in tiers
            },
            entropy=memory.entropy,
            kl_fraction=memory.kl_fraction,
            multiplier=memory.multiplier,
            constraint_level=memory.constraint_level,
            warning=None
            if memory.series is None
            else diagnose(memory.series, self._constraint, self._dead_zone),
        )
