"""What the arrays of a chunk of updates say: rows of the run's tables, the live display, and the
first number that stops training."""

from collections import Counter
from collections.abc import Sequence

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

ENOUGH_EPISODES, RECENT_UPDATES = 200, 20  # that the live display shows
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


def find_fault(
    faults: Float[np.ndarray, "seed iteration"], ends: EpisodeEnds, config: RunConfig, first: int
) -> str | None:
    """A sentence about the first fault in a chunk of updates that begins at `first`: a number that
    is not finite or absurdly large, or an episode beyond its horizon. The program noted it, or it
    is in the sums of the episodes."""
    training, name, horizon = config.training, config.environment_name, config.environment.horizon
    lanes = training.environments
    if faults.any():
        # The earliest; among seeds, the first
        iteration, seed = map(int, np.argwhere(faults.T > 0)[0])
        place, index = divmod(int(faults[seed, iteration]) - 1, len(FAULT_KINDS))
        kind, (step, lane) = FAULT_KINDS[index], divmod(place, lanes)
    else:
        good = {
            "cost": sane(ends.cost).reshape(*ends.ended.shape, -1).all(-1),
            "reward": sane(ends.reward),
            "end": np.asarray(ends.length) <= horizon,
        }
        if (kind := next((kind for kind, each in good.items() if not each.all()), None)) is None:
            return None
        iteration, step, lane, seed = np.argwhere(~np.moveaxis(good[kind], 0, -1))[0]
    update = first + iteration
    where = (
        f"seed {training.seeds[seed]}, update {update + 1}, step {step + 1} of "
        f"{training.rollout_length}, lane {lane} (environment step "
        f"{update * training.batch + step * lanes + lane + 1:,})"
    )
    if kind == "action":
        return f"The policy gave an action that is not finite: {where}."
    if kind == "end":
        return (
            f"{name} continued beyond its horizon of {horizon:,} steps: {where}; write truncated = "
            "(time >= horizon) & ~terminated."
        )
    what = "an observation" if kind == "observation" else f"a {kind}"
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
        # The fewest recent updates with enough episodes
        recent = np.cumsum(series.episodes[::-1][:RECENT_UPDATES])
        updates = min(len(recent), 1 + int(np.searchsorted(recent, ENOUGH_EPISODES)))
        episodes, returns = series.episodes[-updates:], series.returns[-updates:]
        ended, count = episodes > 0, int(episodes.sum())
        weights = episodes[ended]
        rows = self._rows.filter(pl.col("seed") == seed)
        means = rows.select(name for name in AVERAGED if name in rows.columns)
        extras = means.tail(AVERAGED_UPDATES).mean().row(0, named=True) if means.width else {}
        tiers = Counter(rows["tier"].to_list()) if "tier" in rows.columns else Counter()
        extras |= {tier.label: tiers[tier] / tiers.total() for tier in Tier if tier in tiers}
        return SeedStatus(
            seed=seed,
            return_mean=float(np.average(returns[ended], weights=weights)) if count else np.nan,
            costs=series.costs[len(series.costs) - count :].tolist(),
            updates=updates,
            extras=extras,
            warning=diagnose(series, self._constraint, self._dead_zone),
        )
