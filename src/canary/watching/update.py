"""What a callback and the logs see: one record per update, with a part for each seed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from canary.constraints import Constraint


@dataclass(frozen=True, kw_only=True)
class SeedUpdate:
    """One update of one seed. Its numbers are of the whole episodes that ended in the batch, and
    None if there were none."""

    seed: int
    episodes: int
    return_mean: float | None
    cost_mean: float | None
    """None with several costs: their means over the window are among the metrics."""
    constraint_value: float | None
    """What the constraint limits: the share of violations, the mean cost or its CVaR; of several
    constraints the worst, in units of what it allows."""
    metrics: dict[str, float] = field(repr=False)
    """What the algorithm reports about its step; NaN where a number has no meaning."""

    def numbers(self) -> dict[str, float | None]:
        """All numbers by the names that logs give them; None if unknown or not finite. A metric
        with a name of the batch, such as the mean cost over several batches, is
        `algorithm_NAME`."""
        names = ("episodes", "return_mean", "cost_mean", "constraint_value")
        found = {name: getattr(self, name) for name in names} | {
            f"algorithm_{name}" if name in names else name: value
            for name, value in self.metrics.items()
        }
        return {
            name: None if value is None or not math.isfinite(value) else float(value)
            for name, value in found.items()
        }


@dataclass(frozen=True, kw_only=True)
class Update:
    """One update of all seeds."""

    run: Path
    number: int
    """Updates done, this one included."""
    updates: int
    """Updates that are planned."""
    steps: int
    """Environment steps per seed so far."""
    seeds: tuple[SeedUpdate, ...]

    def mean(self, name: str) -> float | None:
        """A number, such as "return_mean", averaged over the seeds that have it."""
        found = [value for seed in self.seeds if (value := seed.numbers().get(name)) is not None]
        return sum(found) / len(found) if found else None


def updates_of(
    rows: pl.DataFrame, episodes: pl.DataFrame, constraint: Constraint, *, run: Path, updates: int
) -> Iterator[Update]:
    """The updates in some rows of a run's tables: a row of metrics per seed and update, a row per
    episode."""
    whole = episodes.filter(pl.col("valid")).partition_by("seed", "iteration", as_dict=True)
    parts = rows.sort("iteration", "seed").partition_by("iteration", maintain_order=True)
    for part in parts:
        number, steps = int(part["iteration"][0]) + 1, int(part["steps"][0])
        seeds = tuple(
            _of_seed(row, whole.get((row["seed"], row["iteration"])), constraint)
            for row in part.to_dicts()
        )
        yield Update(run=run, number=number, updates=updates, steps=steps, seeds=seeds)


def _of_seed(
    row: dict[str, float], ended: pl.DataFrame | None, constraint: Constraint
) -> SeedUpdate:
    costs = None if ended is None else ended["cost"].to_numpy()
    return SeedUpdate(
        seed=int(row["seed"]),
        episodes=0 if costs is None else len(costs),
        return_mean=None if ended is None else float(ended["return"].to_numpy().mean()),
        cost_mean=None if costs is None or costs.ndim > 1 else float(costs.mean()),
        constraint_value=None if costs is None else constraint.measure(costs),
        metrics={
            name: float(value)
            for name, value in row.items()
            if name not in ("seed", "iteration", "steps")
        },
    )
