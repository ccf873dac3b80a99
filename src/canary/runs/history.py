"""The recent updates of every seed for the live display, and a warning if a seed is stuck."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import polars as pl

from canary.constraints import Constraint, Tier
from canary.reporting.diagnosis import SeedSeries, diagnose, joined, seed_series
from canary.terminal.progress import SeedStatus

ENOUGH_EPISODES, RECENT_UPDATES = 200, 20
# Averaged over the recent updates.
AVERAGED, AVERAGED_UPDATES = ("entropy", "kl_fraction", "multiplier", "constraint_level"), 5


class RecentHistory:
    """The recent updates of every seed."""

    def __init__(
        self, seeds: Sequence[int], constraint: Constraint, dead_zone: float | None = None
    ):
        self._series: dict[int, SeedSeries | None] = dict.fromkeys(seeds)
        self._rows = pl.DataFrame()
        self._constraint, self._dead_zone = constraint, dead_zone

    def add(self, rows: pl.DataFrame, episodes: pl.DataFrame) -> None:
        """Add the metrics and the episodes of a chunk."""
        recent = pl.col("iteration") > pl.col("iteration").max() - RECENT_UPDATES
        self._rows = pl.concat([self._rows, rows], how="diagonal").filter(recent)
        for seed, series in self._series.items():
            self._series[seed] = joined(series, seed_series(rows, episodes, seed))

    def status(self) -> list[SeedStatus]:
        return [self._one(seed, series) for seed, series in self._series.items() if series]

    def _one(self, seed: int, series: SeedSeries) -> SeedStatus:
        # As few recent updates as have enough episodes
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
