"""Training in blocks of updates: what tables, figures and pages need of a run's tables."""

from typing import Any

import polars as pl

from canary.reporting.statistics import is_violation

HALF = 24  # blocks in each half of training


def batch_of(config: dict[str, Any]) -> int:
    """Steps per update, from a stored configuration."""
    return int(config["training"]["environments"]) * int(config["training"]["rollout_length"])


def _block(updates: int) -> pl.Expr:
    half = max(1, -(-updates // 2))
    update = pl.col("iteration").cast(pl.Int64)
    later = HALF + (update - half) * HALF // max(1, updates - half)
    return pl.when(update < half).then(update * HALF // half).otherwise(later).alias("block")


def thin(
    episodes: pl.DataFrame, metrics: pl.DataFrame, config: dict[str, Any], steps: int
) -> pl.DataFrame:
    """Both tables of a run as one, with a line per seed and block of training.

    `update_*` are means of update metrics. The tiers of a trust-region method are shares of updates.
    """
    updates = steps // batch_of(config)
    counted = episode_blocks(episodes, updates, config["constraint"]["limit"])
    means = {
        f"update_{name}": pl.col(name).cast(pl.Float64).fill_nan(None).mean().cast(pl.Float32)
        for name in metrics.columns
        if name not in ("seed", "iteration", "steps", "tier")
    }
    if "tier" in metrics.columns:
        for tier in sorted(metrics["tier"].drop_nans().unique()):
            share = (pl.col("tier") == tier).mean().cast(pl.Float32)
            means[f"update_tier_{int(tier)}"] = share
    metrics = metrics.filter(pl.col("iteration") < updates).with_columns(_block(updates))
    blocks = metrics.group_by("seed", "block").agg(
        steps=pl.col("steps").max(), updates=pl.len(), **means
    )
    found = blocks.join(counted.drop("last", "costs"), on=["seed", "block"], how="left")
    counts = [
        pl.col(name).fill_null(0).cast(pl.Int64) for name in ("episodes", "violations", "length")
    ]
    return found.sort("seed", "block").with_columns(*counts)


def episode_blocks(episodes: pl.DataFrame, updates: int, limit: float) -> pl.DataFrame:
    """Counts and sums over the whole episodes of a block, its last update, and the costs."""
    whole = episodes.filter(pl.col("valid") & (pl.col("iteration") < updates))
    over = pl.Series("over", is_violation(whole["cost"].to_numpy(), limit), pl.Boolean)
    cost, reward = (pl.col(name).cast(pl.Float64) for name in ("cost", "return"))
    return whole.with_columns(over, _block(updates)).group_by("seed", "block").agg(
        episodes=pl.len(),
        violations=pl.col("over").sum(),
        cost=cost.sum(),
        cost_squares=(cost**2).sum(),
        reward=reward.sum(),
        length=pl.col("length").cast(pl.Int64).sum(),
        last=pl.col("iteration").max(),
        costs=cost,
    )  # fmt: skip


def rates(blocks: pl.DataFrame) -> pl.DataFrame:
    """With the mean return, the share of violations, and mean and deviation of the cost."""
    count, mean = pl.col("episodes"), pl.col("cost") / pl.col("episodes")
    return blocks.filter(count > 0).with_columns(
        (pl.col("reward") / count).alias("return"),
        violation=pl.col("violations") / count,
        cost=mean,
        deviation=(pl.col("cost_squares") / count - mean**2).clip(0).sqrt(),
    )


def curve(rated: pl.DataFrame, *names: str) -> pl.DataFrame:
    """Mean and standard deviation over seeds in each block."""
    means = (pl.col(name).mean() for name in names)
    spreads = (pl.col(name).std(ddof=0).name.suffix("_deviation") for name in names)
    return rated.group_by("block").agg(pl.col("steps").mean(), *means, *spreads).sort("block")
