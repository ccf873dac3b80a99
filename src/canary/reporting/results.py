"""Results: seeds trained with the same settings under one constraint, reduced to the data of
tables, figures and pages. `of_run` makes them from a run; a study stores them row by row.

Training is split into 48 blocks of updates, 24 in each half. A block has counts and sums over its
whole episodes, and means of its update metrics.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from canary.constraints import Constraint, One, from_dict, one_cost, parts_of, to_dict
from canary.numerics.statistics import clopper_pearson_interval
from canary.reporting.diagnosis import diagnose, seed_series
from canary.reporting.statistics import (
    collapse_time,
    is_violation,
    running_rate,
    seen_by,
    violation_jitter,
)
from canary.runs.directory import read_manifest
from canary.runs.tables import read_table

HALF = 24  # blocks in each half of training
RATE_EPISODES = 50  # episodes in the running violation rate whose collapse is timed
MEASURES = ("violation", "jitter", "return", "cost", "cost_deviation", "length", "constraint")


@dataclass(frozen=True)
class Results:
    """The results of a row or run. An untrained row has no seeds."""

    about: dict[str, Any]
    """The entry of the row in study.json, or facts about the run."""
    config: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    seeds: dict[int, dict[str, Any]] = field(default_factory=dict)
    """For each seed its measures (`of_seed`), the code that trained it, and its final policy."""
    blocks: pl.DataFrame = field(default_factory=pl.DataFrame)
    costs: np.ndarray | None = None
    """Costs of the episodes in the second half; a study does not store them."""

    @property
    def name(self) -> str:
        return self.about["row"]

    @property
    def environment(self) -> str:
        return self.about["environment"]

    @property
    def label(self) -> str:
        """Method, preset and overrides."""
        changed = "".join(f", {one.rpartition('.')[2]}" for one in self.about["overrides"])
        return f"{self.about['algorithm']} (`{self.about['preset']}`{changed})"

    @property
    def constraint(self) -> One:
        return one_cost(from_dict(self.config["constraint"]), "A study")

    @property
    def epsilon(self) -> float | None:
        return None if self.constraint.kind == "mean" else self.constraint.share

    def each(self, name: str) -> list[Any]:
        """A measure of every seed that has it."""
        return [one[name] for one in self.seeds.values() if one[name] is not None]

    def pairs(self, first: str, second: str) -> list[tuple[float, float]]:
        """Two measures of every seed that has both."""
        found = [(one[first], one[second]) for one in self.seeds.values()]
        return [pair for pair in found if None not in pair]

    def final(self, name: str) -> list[Any]:
        """A number of the final policy of every seed that has one."""
        found = (one.get("final") or {} for one in self.seeds.values())
        return [one[name] for one in found if one.get(name) is not None]

    @property
    def rates(self) -> pl.DataFrame:
        """Per seed and block: mean return, share of violations, mean and deviation of the cost, and
        the constrained quantity (`measured`)."""
        count, mean = pl.col("episodes"), pl.col("cost") / pl.col("episodes")
        measured = {"chance": "violation", "mean": "cost", "cvar": "cvar"}[self.constraint.kind]
        rated = self.blocks.filter(count > 0).with_columns(
            (pl.col("reward") / count).alias("return"),
            violation=pl.col("violations") / count,
            cost=mean,
            deviation=(pl.col("cost_squares") / count - mean**2).clip(0).sqrt(),
        )
        return rated.with_columns(measured=pl.col(measured))

    def curve(self, *names: str) -> pl.DataFrame:
        """Mean and standard deviation over seeds in each block."""
        means = (pl.col(name).mean() for name in names)
        spreads = (pl.col(name).std(ddof=0).name.suffix("_deviation") for name in names)
        grouped = self.rates.group_by("block")
        return grouped.agg(pl.col("steps").mean(), *means, *spreads).sort("block")

    def pooled(self) -> pl.DataFrame:
        """All seeds together in each block; probabilities have exact 95% intervals."""
        names = ("steps", "return", "cost", "deviation", "measured")
        means = [pl.col(name).mean() for name in names]
        if "update_risk_bound" in self.blocks.columns:
            means.append(pl.col("update_risk_bound").mean().alias("bound"))
        sums = (pl.col(name).sum() for name in ("violations", "episodes"))
        whole = self.rates.group_by("block").agg(*means, *sums).sort("block")
        if self.constraint.kind != "chance":
            return whole
        violations, episodes = whole["violations"].to_numpy(), whole["episodes"].to_numpy()
        lower, upper = clopper_pearson_interval(violations, episodes)
        return whole.with_columns(measured=violations / episodes, lower=lower, upper=upper)


def of_run(run: Path) -> list[Results]:
    """The results of a run, finished or not, under each of its constraints."""
    manifest = read_manifest(run)
    config, steps = manifest["config"], int(manifest["steps"])
    episodes, metrics = read_table(run, "episodes"), read_table(run, "metrics")
    updates = steps // batch_of(config)
    origin = {"code": " ".join(manifest["code"]), "versions": manifest["versions"]}
    about = {name: manifest[name] for name in ("status", "device", "platform", "started")}
    about |= {"environment": config["environment"]["name"]}
    about |= {"command": " ".join(map(str, manifest["command"]))}
    found = []
    for part in parts_of(from_dict(config["constraint"])):
        own = config | {"constraint": to_dict(part)}
        ended, updated = seen_by(part, episodes), _metrics_of(part, metrics)
        name = run.name if part.number is None else f"{run.name}: {part.label}"
        seeds = {
            seed: of_seed(own, ended, updated, updates, seed) | origin
            for seed in config["training"]["seeds"]
        }
        blocks = thin(ended, updated, part, updates)
        costs = halves(ended, updates)[0]["cost"].to_numpy().astype(float)
        found.append(Results(about | {"row": name}, own, steps, seeds, blocks, costs))
    return found


def _metrics_of(constraint: One, metrics: pl.DataFrame) -> pl.DataFrame:
    """The metrics; those of the constraint have the names of a single constraint."""
    if constraint.number is None:
        return metrics
    end = f"_{constraint.number}"
    own = {name: name.removesuffix(end) for name in metrics.columns if name.endswith(end)}
    return metrics.drop(own.values(), strict=False).rename(own)


def batch_of(config: dict[str, Any]) -> int:
    """Steps per update, from a stored configuration."""
    return int(config["training"]["environments"]) * int(config["training"]["rollout_length"])


def halves(episodes: pl.DataFrame, updates: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Whole episodes of the second half of the updates so far, and of all updates."""
    whole = episodes.filter(pl.col("valid") & (pl.col("iteration") < updates))
    return whole.filter(pl.col("iteration") >= -(-updates // 2)), whole


def of_seed(
    config: dict[str, Any], episodes: pl.DataFrame, metrics: pl.DataFrame, updates: int, seed: int
) -> dict[str, Any]:
    """The stored data of a seed."""
    constraint = one_cost(from_dict(config["constraint"]), "A study")
    episodes, metrics = (table.filter(pl.col("seed") == seed) for table in (episodes, metrics))
    whole = halves(episodes, updates)[1]
    violated = is_violation(whole["cost"].to_numpy(), constraint.limit)
    at, rate = running_rate(violated, whole["iteration"].to_numpy(), RATE_EPISODES)
    return {
        **measures_of_training(episodes, constraint, updates),
        "collapse_steps": collapse_time((at + 1.0) * batch_of(config), rate),
        "cantelli": _cantelli(metrics, constraint, updates),
        "warning": warning(config, metrics, episodes, updates, seed),
    }


def measures_of_training(
    episodes: pl.DataFrame, constraint: Constraint, updates: int
) -> dict[str, Any]:
    """The measures of a seed over the second half of its training, and its violations over all."""
    second, whole = halves(episodes, updates)
    iteration, first = second["iteration"].to_numpy(), -(-updates // 2)
    violated = is_violation(second["cost"].to_numpy(), constraint.limit)
    return {
        **measures(second, constraint),
        "jitter": violation_jitter(violated, iteration, first, updates),
        "episodes_whole": len(whole),
        "violation_whole": measures(whole, constraint)["violation"],
    }


def measures(episodes: pl.DataFrame, constraint: Constraint) -> dict[str, Any]:
    """The measures of episodes; None if unknown or not finite. With several costs there is no
    `cost`, and for frozen policies no jitter."""
    count, costs = len(episodes), episodes["cost"]
    found: dict[str, Any] = dict.fromkeys(MEASURES)
    if count:
        found |= {
            "violation": is_violation(costs.to_numpy(), constraint.limit).mean(),
            "return": episodes["return"].cast(pl.Float64).mean(),
            "length": episodes["length"].mean(),
            "constraint": constraint.measure(costs.to_numpy().astype(float)),
        }
        if costs.dtype.is_numeric():
            one = costs.cast(pl.Float64)
            found |= {"cost": one.mean(), "cost_deviation": one.std(ddof=0)}
    return {"episodes": count} | {name: _finite(value) for name, value in found.items()}


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def warning(
    config: dict[str, Any], metrics: pl.DataFrame, episodes: pl.DataFrame, updates: int, seed: int
) -> str | None:
    """A sentence if the seed is stuck or timid, else None."""
    metrics, episodes = (
        table.filter(pl.col("iteration") < updates) for table in (metrics, episodes)
    )
    dead_zone = config["algorithm"]["settings"].get("dead_zone")
    series = seed_series(metrics, episodes, seed)
    return diagnose(series, from_dict(config["constraint"]), dead_zone)


def _cantelli(metrics: pl.DataFrame, constraint: One, updates: int) -> float | None:
    """Mean of (1/epsilon - 1) (sigma/l)^2 - (1 - mu/l)^2 over the second half of the updates; None
    if the method does not report the moments of the cost."""
    if constraint.kind != "chance" or not {"cost_mean", "cost_deviation"} <= set(metrics.columns):
        return None
    in_half = pl.col("iteration").is_between(-(-updates // 2), updates, closed="left")
    half = metrics.filter(in_half & pl.col("cost_mean").is_not_nan())
    mean, deviation = (
        half[name].to_numpy() / constraint.limit for name in ("cost_mean", "cost_deviation")
    )
    value = (1 / constraint.share - 1) * deviation**2 - (1 - mean) ** 2
    return float(value.mean()) if len(half) else None


def thin(
    episodes: pl.DataFrame, metrics: pl.DataFrame, constraint: One, updates: int
) -> pl.DataFrame:
    """Both tables as one with a line per seed and block. `update_*` are means of update metrics;
    tiers of a trust-region method become shares of updates."""
    half = max(1, -(-updates // 2))
    update = pl.col("iteration").cast(pl.Int64)
    later = HALF + (update - half) * HALF // max(1, updates - half)
    block = pl.when(update < half).then(update * HALF // half).otherwise(later).alias("block")

    whole = halves(episodes, updates)[1]
    over = pl.Series("over", is_violation(whole["cost"].to_numpy(), constraint.limit), pl.Boolean)
    cost, reward = (pl.col(name).cast(pl.Float64) for name in ("cost", "return"))
    counted = whole.with_columns(over, block).group_by("seed", "block").agg(
        episodes=pl.len(),
        violations=pl.col("over").sum(),
        cost=cost.sum(),
        cost_squares=(cost**2).sum(),
        reward=reward.sum(),
        length=pl.col("length").cast(pl.Int64).sum(),
        costs=cost,
    )  # fmt: skip
    if constraint.kind == "cvar":
        tails = [constraint.measure(costs.to_numpy()) for costs in counted["costs"]]
        counted = counted.with_columns(cvar=pl.Series(tails, dtype=pl.Float64))
    means = {
        f"update_{name}": pl.col(name).cast(pl.Float64).fill_nan(None).mean().cast(pl.Float32)
        for name in metrics.columns
        if name not in ("seed", "iteration", "steps", "tier")
    }
    if "tier" in metrics.columns:
        for tier in sorted(metrics["tier"].drop_nans().unique()):
            share = (pl.col("tier") == tier).mean().cast(pl.Float32)
            means[f"update_tier_{int(tier)}"] = share
    blocks = metrics.filter(pl.col("iteration") < updates).with_columns(block)
    blocks = blocks.group_by("seed", "block").agg(
        steps=pl.col("steps").max(), updates=pl.len(), **means
    )
    found = blocks.join(counted.drop("costs"), on=["seed", "block"], how="left")
    counts = [
        pl.col(name).fill_null(0).cast(pl.Int64) for name in ("episodes", "violations", "length")
    ]
    return found.sort("seed", "block").with_columns(*counts)
