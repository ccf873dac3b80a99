"""Whether a seed has stopped getting anywhere, in plain words.

Two ways to fail are known (docs/algorithms/canary.md). A *stuck* seed violates its limit, spends its updates on
restoring the constraint, and the constraint does not come down. A *timid* seed is safe and has given up much
of a return that it had before. Both are judged over the last `WINDOW` updates against those before, so a
seed that is merely on its way is not blamed.
"""

from dataclasses import dataclass, fields

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from canary.numerics.binomial import clopper_pearson_interval

# Of `canary.numerics.trust_region.Tier`, which would bring JAX along. The last one is no step at all: nothing usable was found.
RESTORING_TIERS = (1, 2, 3)
WINDOW = 25  # updates
RESTORING = 0.9  # share of updates spent on restoring, or on nothing
PROGRESS = 0.9  # a bound that fell to less than this share of what it was is coming down
LOST = 0.3  # share of the best return whose loss makes a safe seed timid


@dataclass(frozen=True)
class SeedSeries:
    """One seed, update by update; a mean return is NaN where no episode ended."""

    episodes: Int[np.ndarray, "update"]
    violations: Int[np.ndarray, "update"]
    returns: Float[np.ndarray, "update"]
    restoring: Bool[np.ndarray, "update"]
    bound: Float[np.ndarray, "update"]
    entropy: Float[np.ndarray, "update"]


def joined(first: SeedSeries | None, second: SeedSeries) -> SeedSeries:
    """One after the other."""
    if first is None:
        return second
    pairs = {
        field.name: (getattr(first, field.name), getattr(second, field.name)) for field in fields(SeedSeries)
    }
    return SeedSeries(**{name: np.concatenate(pair) for name, pair in pairs.items()})


def seed_series(metrics: pl.DataFrame, episodes: pl.DataFrame, seed: int, limit: float) -> SeedSeries:
    """What the diagnosis of a seed looks at, from the rows of a run; algorithms without tiers never restore."""
    rows = metrics.filter(pl.col("seed") == seed).sort("iteration")
    ended = (
        episodes.filter((pl.col("seed") == seed) & pl.col("valid"))
        .group_by(pl.col("iteration").cast(pl.Int64))
        .agg(pl.len().alias("n"), (pl.col("cost") > limit).sum().alias("bad"), pl.col("return").mean())
    )
    counts = rows.select(pl.col("iteration").cast(pl.Int64)).join(
        ended, on="iteration", how="left", maintain_order="left"
    )

    def column(name: str) -> np.ndarray:
        known = rows[name].to_numpy() if name in rows.columns else np.full(len(rows), np.nan)
        return known.astype(float)

    return SeedSeries(
        episodes=counts["n"].fill_null(0).to_numpy().astype(int),
        violations=counts["bad"].fill_null(0).to_numpy().astype(int),
        returns=counts["return"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        restoring=np.isin(column("tier"), RESTORING_TIERS),
        bound=column("bound_value"),
        entropy=column("entropy"),
    )


def diagnose(series: SeedSeries, epsilon: float) -> str | None:
    """A sentence about a seed that is stuck or timid, else None."""
    if len(series.returns) < 2 * WINDOW:
        return None
    episodes, violations = int(series.episodes[-WINDOW:].sum()), int(series.violations[-WINDOW:].sum())
    if episodes == 0:
        return None
    low, _ = clopper_pearson_interval(violations, episodes)
    if low > epsilon:
        return _stuck(series, violations / episodes)
    if violations <= epsilon * episodes:
        return _timid(series)
    return None


def _stuck(series: SeedSeries, rate: float) -> str | None:
    recent, before = series.bound[-WINDOW:], series.bound[-2 * WINDOW : -WINDOW]
    is_falling = np.nanmean(recent) < PROGRESS * np.nanmean(before) if np.isfinite(recent).any() else True
    if series.restoring[-2 * WINDOW :].mean() < RESTORING or is_falling:
        return None
    return (
        f"stuck: it has done little but try to restore its constraint for {2 * WINDOW} updates, and the constraint "
        f"does not come down (violation rate {rate:.2g}, entropy {series.entropy[-WINDOW:].mean():.2g})"
    )


def _timid(series: SeedSeries) -> str | None:
    count = len(series.returns) // WINDOW
    blocks = series.returns[-count * WINDOW :].reshape(count, WINDOW)
    known = [float(np.nanmean(block)) for block in blocks if np.isfinite(block).any()]
    if len(known) < 2 or known[-1] >= max(known) - LOST * abs(max(known)):
        return None
    remedy = "; `--set algo.tolerated_loss=0.2` may keep it" if series.restoring.any() else ""
    return (
        f"timid: it keeps its limit, but its return fell from {max(known):.3g} to {known[-1]:.3g} "
        f"(entropy {series.entropy[-WINDOW:].mean():.2g}){remedy}"
    )
