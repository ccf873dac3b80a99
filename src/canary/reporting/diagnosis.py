"""Warnings about failed seeds (docs/algorithms/canary.md).

A *stuck* seed violates its limit, and its updates fail to restore the constraint. A *timid* seed is
safe but has lost much of its best return. A seed that still improves gets no warning.
"""

from dataclasses import dataclass, fields

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from canary.constraints import Constraint, Tier
from canary.numerics.statistics import measurement

RESTORING_TIERS = (Tier.BOUND_RESTORATION, Tier.MEAN_RESTORATION, Tier.NO_STEP)
WINDOW = 25  # updates
RESTORING = 0.9  # share of updates that restore or make no step
PROGRESS = 0.9  # a bound below this share of its earlier mean is falling
LOST = 0.3  # share of the best return whose loss makes a safe seed timid
NOISE = 3  # standard errors that the loss must exceed
NAMES = {"chance": "violation rate", "mean": "mean cost", "cvar": "CVaR", "joint": "worst level"}


@dataclass(frozen=True)
class SeedSeries:
    """One seed, update by update; a mean return is NaN if no episode ended."""

    episodes: Int[np.ndarray, "update"]
    costs: Float[np.ndarray, "episode ..."]
    """Costs of all episodes, in the order of updates."""
    returns: Float[np.ndarray, "update"]
    restoring: Bool[np.ndarray, "update"]
    bound: Float[np.ndarray, "update"]
    entropy: Float[np.ndarray, "update"]


def joined(first: SeedSeries | None, second: SeedSeries) -> SeedSeries:
    """The two series concatenated."""
    if first is None:
        return second
    names = (field.name for field in fields(SeedSeries))
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in names}
    return SeedSeries(**{name: np.concatenate(pair) for name, pair in pairs.items()})


def seed_series(metrics: pl.DataFrame, episodes: pl.DataFrame, seed: int) -> SeedSeries:
    """The series of a seed from the tables of a run. A trust region restores the constraint in some
    tiers, a method with a price while the level is above 1, other methods never."""
    integer = pl.col("iteration").cast(pl.Int64)
    rows = metrics.filter(pl.col("seed") == seed).with_columns(integer).sort("iteration")
    own = episodes.filter((pl.col("seed") == seed) & pl.col("valid")).with_columns(integer)
    own = own.join(rows.select("iteration"), on="iteration", how="semi", maintain_order="left")
    own = own.sort("iteration", maintain_order=True)
    ended = own.group_by("iteration").agg(pl.len().alias("n"), pl.col("return").mean())
    counts = rows.select("iteration").join(ended, on="iteration", how="left", maintain_order="left")

    def column(name: str) -> np.ndarray:
        known = rows[name].to_numpy() if name in rows.columns else np.full(len(rows), np.nan)
        return known.astype(float)

    value, level = column("bound_value"), column("constraint_level")
    return SeedSeries(
        episodes=counts["n"].fill_null(0).to_numpy().astype(int),
        costs=own["cost"].to_numpy().astype(float),
        returns=counts["return"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        restoring=np.isin(column("tier"), RESTORING_TIERS) | (level > 1),
        bound=np.where(np.isnan(value), level, value),
        entropy=column("entropy"),
    )


def diagnose(
    series: SeedSeries, constraint: Constraint, dead_zone: float | None = None
) -> str | None:
    """A warning about a stuck or timid seed, with advice; None for other seeds. `dead_zone` is the
    method's, if it has one."""
    if len(series.returns) < 2 * WINDOW:
        return None
    episodes = int(series.episodes[-WINDOW:].sum())
    measured = measurement(constraint, series.costs[len(series.costs) - episodes :])
    if measured is None:
        return None
    entropy = f"entropy {series.entropy[-WINDOW:].mean():.2g}"
    if measured.lower > constraint.allowed and _restores_in_vain(series, constraint):
        return (
            f"stuck: nearly all of its last {2 * WINDOW} updates tried and failed to restore the "
            f"constraint ({NAMES[constraint.kind]} {measured.value:.2g}, {entropy}); "
            f"{_reached(series, constraint)}; train with a larger limit first and start from that run "
            "(--from), or train longer"
        )
    windows = series.returns[len(series.returns) % WINDOW :].reshape(-1, WINDOW)
    windows = [one[np.isfinite(one)] for one in windows]
    known = [(one.mean(), one.var() / len(one)) for one in windows if len(one)]
    (best, best_error), (last, last_error) = max(known), known[-1]
    noise = NOISE * np.sqrt(best_error + last_error)
    lost = last + noise < best - LOST * abs(best)
    if measured.value > constraint.allowed or not lost:
        return None
    advice = "try a larger limit or epsilon"
    if dead_zone is not None:
        wider = f"--set algo.dead_zone={(1 + dead_zone) / 2:.2g}"
        advice = f"a wider dead zone is less conservative ({wider})"
    return (
        f"timid: it stays within its limit, but its return fell from {best:.3g} to "
        f"{last:.3g} ({entropy}); {advice}"
    )


def _restores_in_vain(series: SeedSeries, constraint: Constraint) -> bool:
    """Whether nearly all recent updates tried to restore the constraint, but neither its bound nor
    its value fell."""
    recent, before = series.bound[-WINDOW:], series.bound[-2 * WINDOW : -WINDOW]
    if not np.isfinite(recent).any() or np.nanmean(recent) < PROGRESS * np.nanmean(before):
        return False
    updates = len(series.returns)
    before, recent = (_measured(series, constraint, updates - n * WINDOW) for n in (2, 1))
    if recent < PROGRESS * before:
        return False
    return bool(series.restoring[-2 * WINDOW :].mean() >= RESTORING)


def _measured(series: SeedSeries, constraint: Constraint, first: int) -> float:
    """The constrained quantity over the window from update `first`; NaN without episodes."""
    before, own = series.episodes[:first].sum(), series.episodes[first : first + WINDOW].sum()
    return constraint.measure(series.costs[before : before + own]) if own else np.nan


def _reached(series: SeedSeries, constraint: Constraint) -> str:
    """The result of the safest window of updates, in words."""
    starts = range(0, len(series.returns) - WINDOW + 1, WINDOW)
    windows = [(_measured(series, constraint, first), first) for first in starts]
    value, first = min(window for window in windows if np.isfinite(window[0]))
    earned = f"return {np.nanmean(series.returns[first : first + WINDOW]):.3g}"
    about = f"{NAMES[constraint.kind]} {value:.2g}, {earned}"
    where = f"in updates {first + 1} to {first + WINDOW}"
    if value <= constraint.allowed:
        return f"{where} it stayed within the limit ({about})"
    return f"its lowest value was {where} ({about})"
