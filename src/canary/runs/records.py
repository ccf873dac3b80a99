"""What the arrays of a chunk of updates say: rows of the run's tables, the live display, and the
first number that stops training."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float

from canary.config.config import RunConfig
from canary.constraints import Constraint
from canary.numerics.running_statistics import sane
from canary.numerics.tiers import Tier
from canary.reporting.diagnosis import SeedSeries, diagnose, joined, seed_series
from canary.terminal.progress import SeedStatus
from canary.training import FAULT_KINDS
from canary.types import EpisodeEnds

# The live display shows the fewest recent updates with ENOUGH_EPISODES. It looks back FEW_UPDATES,
# and up to RECENT_UPDATES where fewer than FEW_EPISODES ended in those.
ENOUGH_EPISODES, FEW_EPISODES = 200, 20
FEW_UPDATES, RECENT_UPDATES = 10, 50
# Averaged over the last updates.
AVERAGED, AVERAGED_UPDATES = ("entropy", "kl_fraction", "multiplier", "constraint_level"), 5

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


class Fault(NamedTuple):
    """A number that is not finite or absurdly large, or an episode beyond its horizon. Places count
    from 0, iterations from the start of the chunk."""

    kind: str
    iteration: int
    step: int
    lane: int
    seed: int


def find_fault(
    faults: Float[np.ndarray, "seed iteration"], ends: EpisodeEnds, lanes: int, horizon: int
) -> Fault | None:
    """The first fault of a chunk: as the program noted it, or in the sums of the episodes."""
    if faults.any():
        # The earliest; among seeds, the first
        iteration, seed = map(int, np.argwhere(faults.T > 0)[0])
        place, kind = divmod(int(faults[seed, iteration]) - 1, len(FAULT_KINDS))
        return Fault(FAULT_KINDS[kind], iteration, *divmod(place, lanes), seed)
    for kind, good in {
        "cost": sane(ends.cost).reshape(*ends.ended.shape, -1).all(-1),
        "reward": sane(ends.reward),
        "end": np.asarray(ends.length) <= horizon,
    }.items():
        if not good.all():
            return Fault(kind, *map(int, np.argwhere(~np.moveaxis(good, 0, -1))[0]))
    return None


def fault_sentence(fault: Fault, config: RunConfig, first: int) -> str:
    """Where a fault happened in the updates from `first` on, and what to do."""
    training, name = config.training, config.environment_name
    update, lanes = first + fault.iteration, training.environments
    step = update * training.batch + fault.step * lanes + fault.lane + 1
    where = (
        f"seed {training.seeds[fault.seed]}, update {update + 1}, step {fault.step + 1} of "
        f"{training.rollout_length}, lane {fault.lane} (environment step {step:,})"
    )
    if fault.kind == "action":
        return f"The policy gave an action that is not finite: {where}."
    if fault.kind == "end":
        return (
            f"{name} continued beyond its horizon of {config.environment.horizon:,} steps: "
            f"{where}; write truncated = (time >= horizon) & ~terminated."
        )
    what = "an observation" if fault.kind == "observation" else f"a {fault.kind}"
    return (
        f"{name} gave {what} that is not finite, or absurdly large: {where}; `canary check-env` "
        "looks for the cause."
    )


class RecentHistory:
    """What the live display shows of every seed: its recent updates, and a warning if it is
    stuck."""

    def __init__(
        self, seeds: Sequence[int], constraint: Constraint, dead_zone: float | None = None
    ):
        self._series: dict[int, SeedSeries | None] = dict.fromkeys(seeds)
        self._rows = pl.DataFrame()
        self._constraint, self._dead_zone = constraint, dead_zone

    def add(self, rows: pl.DataFrame, episodes: pl.DataFrame) -> None:
        """The metrics and the episodes of a chunk."""
        recent = pl.col("iteration") > pl.col("iteration").max() - RECENT_UPDATES
        self._rows = pl.concat([self._rows, rows], how="diagonal").filter(recent)
        for seed, series in self._series.items():
            self._series[seed] = joined(series, seed_series(rows, episodes, seed))

    def status(self) -> list[SeedStatus]:
        return [self._one(seed, series) for seed, series in self._series.items() if series]

    def _one(self, seed: int, series: SeedSeries) -> SeedStatus:
        rows, updates = self._rows.filter(pl.col("seed") == seed), _shown(series.episodes)
        episodes, returns = series.episodes[-updates:], series.returns[-updates:]
        ended, count = episodes > 0, int(episodes.sum())
        means = rows.select(name for name in AVERAGED if name in rows.columns)
        means = means.tail(AVERAGED_UPDATES).mean()
        tiers = Counter(rows["tier"].to_list()) if "tier" in rows.columns else Counter()
        return SeedStatus(
            seed=seed,
            return_mean=float(np.average(returns[ended], weights=episodes[ended]))
            if count
            else float("nan"),
            costs=series.costs[len(series.costs) - count :].tolist(),
            updates=updates,
            extras=(means.row(0, named=True) if len(means) else {})
            | {tier.label: tiers[tier] / tiers.total() for tier in Tier if tier in tiers},
            warning=diagnose(series, self._constraint, self._dead_zone),
        )


def _shown(episodes: np.ndarray) -> int:
    """How many of the last updates are shown, from the episodes that ended in each."""
    recent, count = episodes[::-1][:RECENT_UPDATES], 0
    for updates, more in enumerate(recent):
        if count >= ENOUGH_EPISODES or (updates >= FEW_UPDATES and count >= FEW_EPISODES):
            return updates
        count += more
    return len(recent)
