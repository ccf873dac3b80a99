"""Whether a seed has stopped getting anywhere, in plain words.

Three ways to fail are known (docs/algorithms/canary.md). A *stuck* seed violates its limit, spends
its updates on restoring the constraint, and the constraint does not come down. A *timid* seed is
safe and has given up much of a return that it had before. A seed that *chases* a bound is timid
because its updates go on restoring a bound that does not come down, which may be one that no policy
meets. All are judged over the last `WINDOW` updates against those before, so a seed that is merely
on its way is not blamed.
"""

from dataclasses import dataclass, fields

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from canary.constraints import Constraint
from canary.numerics.measurement import measurement

# Of `canary.numerics.trust_region.Tier`, which would bring JAX along. The last one is no step at
# all: nothing usable was found.
RESTORING_TIERS = (1, 2, 3)
WINDOW = 25  # updates
RESTORING = 0.9  # share of updates spent on restoring, or on nothing
PROGRESS = 0.9  # a bound that fell to less than this share of what it was is coming down
NAMES = {"chance": "violation rate", "mean": "mean cost", "cvar": "CVaR"}
LOST = 0.3  # share of the best return whose loss makes a safe seed timid


@dataclass(frozen=True)
class SeedSeries:
    """One seed, update by update; a mean return is NaN where no episode ended."""

    episodes: Int[np.ndarray, "update"]
    costs: Float[np.ndarray, "episode"]
    """Of all episodes, in the order of the updates."""
    returns: Float[np.ndarray, "update"]
    restoring: Bool[np.ndarray, "update"]
    bound: Float[np.ndarray, "update"]
    entropy: Float[np.ndarray, "update"]


def joined(first: SeedSeries | None, second: SeedSeries) -> SeedSeries:
    """One after the other."""
    if first is None:
        return second
    pairs = {
        field.name: (getattr(first, field.name), getattr(second, field.name))
        for field in fields(SeedSeries)
    }
    return SeedSeries(**{name: np.concatenate(pair) for name, pair in pairs.items()})


def seed_series(metrics: pl.DataFrame, episodes: pl.DataFrame, seed: int) -> SeedSeries:
    """What the diagnosis of a seed looks at, from the rows of a run; algorithms without tiers never
    restore."""
    rows = metrics.filter(pl.col("seed") == seed).sort("iteration")
    own = episodes.filter((pl.col("seed") == seed) & pl.col("valid")).sort(
        "iteration", maintain_order=True
    )
    ended = own.group_by(pl.col("iteration").cast(pl.Int64)).agg(
        pl.len().alias("n"), pl.col("return").mean()
    )
    counts = rows.select(pl.col("iteration").cast(pl.Int64)).join(
        ended, on="iteration", how="left", maintain_order="left"
    )

    def column(name: str) -> np.ndarray:
        known = rows[name].to_numpy() if name in rows.columns else np.full(len(rows), np.nan)
        return known.astype(float)

    return SeedSeries(
        episodes=counts["n"].fill_null(0).to_numpy().astype(int),
        costs=own.filter(pl.col("iteration").is_in(rows["iteration"].to_list()))["cost"]
        .cast(pl.Float64)
        .to_numpy(),
        returns=counts["return"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        restoring=np.isin(column("tier"), RESTORING_TIERS),
        bound=column("bound_value"),
        entropy=column("entropy"),
    )


def diagnose(series: SeedSeries, constraint: Constraint) -> str | None:
    """A sentence about a seed that is stuck, timid or chasing its bound, else None."""
    if len(series.returns) < 2 * WINDOW:
        return None
    episodes = int(series.episodes[-WINDOW:].sum())
    measured = measurement(constraint, series.costs[len(series.costs) - episodes :])
    if measured is None:
        return None
    if measured.lower > constraint.allowed:
        return _stuck(series, f"{NAMES[constraint.kind]} {measured.value:.2g}")
    if measured.value <= constraint.allowed:
        return _timid(series)
    return None


def _restores_in_vain(series: SeedSeries) -> bool:
    """Whether nearly all of the last updates restored the constraint, and it did not come down."""
    recent, before = series.bound[-WINDOW:], series.bound[-2 * WINDOW : -WINDOW]
    is_falling = (
        np.nanmean(recent) < PROGRESS * np.nanmean(before) if np.isfinite(recent).any() else True
    )
    return bool(series.restoring[-2 * WINDOW :].mean() >= RESTORING and not is_falling)


def _stuck(series: SeedSeries, now: str) -> str | None:
    if not _restores_in_vain(series):
        return None
    return (
        f"stuck: it has done little but try to restore its constraint for {2 * WINDOW} updates, "
        "and the constraint "
        f"does not come down ({now}, entropy {series.entropy[-WINDOW:].mean():.2g})"
    )


def _timid(series: SeedSeries) -> str | None:
    count = len(series.returns) // WINDOW
    blocks = series.returns[-count * WINDOW :].reshape(count, WINDOW)
    known = [float(np.nanmean(block)) for block in blocks if np.isfinite(block).any()]
    if len(known) < 2 or known[-1] >= max(known) - LOST * abs(max(known)):
        return None
    fell = f"its return fell from {max(known):.3g} to {known[-1]:.3g}"
    if _restores_in_vain(series):
        return (
            "chasing a bound that it does not reach: it keeps its limit, but the bound asks for "
            "more and does not come "
            f"down, and {fell}; a wider dead zone asks for less (--set algo.dead_zone=0.75)"
        )
    return f"timid: it keeps its limit, but {fell} (entropy {series.entropy[-WINDOW:].mean():.2g})"
