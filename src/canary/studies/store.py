"""The store of results: trained seeds, thinned to what tables, figures and reports need. No JAX.

    RESULTS/STUDY/study.json              which rows the study shows, and the folder of each
    RESULTS/STUDY/ROW/row.json            the settings; of each seed its measures, its final policy
                                          and the code that trained it
    RESULTS/STUDY/ROW/blocks-HASH.parquet of each seed, 48 blocks of training: counts and sums over
                                          its episodes, means of its update metrics
    RESULTS/STUDY/points.json             the numbers of a study without rows

Every JSON file is sealed with the SHA-256 of its content, and the name of a table has its own. A
file that was changed does not match and is not shown. row.json is written after its table, so a
process that is killed leaves the row as it was.
"""

import hashlib
import io
from pathlib import Path
from typing import Any

import polars as pl

from canary.constraints import One, from_dict, one_cost
from canary.errors import CanaryError
from canary.reporting.statistics import collapse_time, is_violation, running_rate
from canary.reporting.summary import batch_of, summarise_tables
from canary.runs.files import make_folder, read_sealed, write_atomically, write_sealed

HALF = 24  # blocks in each half of training
RATE_EPISODES = 50  # episodes in the running violation rate whose collapse is timed
MEASURES = (
    "episodes", "violation", "jitter", "return", "cost", "cost_deviation", "length", "constraint"
)  # fmt: skip


def measure(
    config: dict[str, Any], episodes: pl.DataFrame, metrics: pl.DataFrame, steps: int, seed: int
) -> dict[str, Any]:
    """The measures of one seed: over the second half of training, and its violations over all of
    it."""
    config = config | {"training": config["training"] | {"seeds": [seed]}}
    episodes, metrics = (table.filter(pl.col("seed") == seed) for table in (episodes, metrics))
    summary = summarise_tables(config, episodes, metrics, steps)
    constraint = one_cost(from_dict(config["constraint"]), "A study")
    batch = batch_of(config)
    whole = episodes.filter(pl.col("valid") & (pl.col("iteration") < steps // batch))
    violated = is_violation(whole["cost"].to_numpy(), constraint.limit)
    updates, rate = running_rate(violated, whole["iteration"].to_numpy(), RATE_EPISODES)
    return {
        **{name: summary[f"{name}_per_seed"][0] for name in MEASURES},
        "episodes_whole": len(whole),
        "violation_whole": summary["violation_whole_per_seed"][0],
        "collapse_steps": collapse_time((updates + 1.0) * batch, rate),
        "cantelli": _cantelli(metrics, constraint, steps // batch),
        "warning": summary["warnings"].get(str(seed)),
    }


def _cantelli(metrics: pl.DataFrame, constraint: One, updates: int) -> float | None:
    """Mean of (1/epsilon - 1) (sigma/l)^2 - (1 - mu/l)^2 over the second half of the updates; None
    where the method does not report the moments of the cost."""
    if constraint.kind != "chance" or not {"cost_mean", "cost_deviation"} <= set(metrics.columns):
        return None
    half = metrics.filter(
        pl.col("iteration").is_between(-(-updates // 2), updates, closed="left")
        & pl.col("cost_mean").is_not_nan()
    )
    mean, deviation = (half[name].to_numpy() for name in ("cost_mean", "cost_deviation"))
    limit, beta = constraint.limit, 1 / constraint.share - 1
    value = beta * (deviation / limit) ** 2 - (1 - mean / limit) ** 2
    return float(value.mean()) if len(half) else None


def thin(
    episodes: pl.DataFrame, metrics: pl.DataFrame, config: dict[str, Any], steps: int
) -> pl.DataFrame:
    """Both tables of a run as one, with a line per seed and block of training.

    `update_*` are means of update metrics. The tiers of a trust-region method are shares of updates.
    """
    updates, limit = steps // batch_of(config), config["constraint"]["limit"]
    half = max(1, -(-updates // 2))
    update = pl.col("iteration").cast(pl.Int64)
    later = HALF + (update - half) * HALF // max(1, updates - half)
    block = pl.when(update < half).then(update * HALF // half).otherwise(later).alias("block")
    episodes, metrics = (
        table.filter(pl.col("iteration") < updates).with_columns(block)
        for table in (episodes.filter("valid"), metrics)
    )
    over = pl.Series("over", is_violation(episodes["cost"].to_numpy(), limit), pl.Boolean)
    cost, reward = (pl.col(name).cast(pl.Float64) for name in ("cost", "return"))
    counted = episodes.with_columns(over).group_by("seed", "block").agg(
        episodes=pl.len(),
        violations=pl.col("over").sum(),
        cost=cost.sum(),
        cost_squares=(cost**2).sum(),
        reward=reward.sum(),
        length=pl.col("length").cast(pl.Int64).sum(),
    )  # fmt: skip
    means = {
        f"update_{name}": pl.col(name).cast(pl.Float64).fill_nan(None).mean().cast(pl.Float32)
        for name in metrics.columns
        if name not in ("seed", "iteration", "steps", "block", "tier")
    }
    if "tier" in metrics.columns:
        for tier in sorted(metrics["tier"].drop_nans().unique()):
            share = (pl.col("tier") == tier).mean().cast(pl.Float32)
            means[f"update_tier_{int(tier)}"] = share
    blocks = metrics.group_by("seed", "block").agg(
        steps=pl.col("steps").max(), updates=pl.len(), **means
    )
    joined = blocks.join(counted, on=["seed", "block"], how="left").sort("seed", "block")
    counts = ("episodes", "violations", "length")
    return joined.with_columns(*(pl.col(name).fill_null(0).cast(pl.Int64) for name in counts))


def read_row(folder: Path) -> dict[str, Any] | None:
    """row.json; None where nothing was ever stored."""
    path = folder / "row.json"
    return read_sealed(path) if path.exists() else None


def read_blocks(folder: Path, record: dict[str, Any]) -> pl.DataFrame:
    path = folder / str(record["blocks"])
    data = path.read_bytes() if path.exists() else b""
    if _name_of(data) != path.name:
        raise CanaryError(f"{path} is missing, or was changed since it was written; restore it.")
    return pl.read_parquet(data)


def _name_of(table: bytes) -> str:
    return f"blocks-{hashlib.sha256(table).hexdigest()[:16]}.parquet"


def stored_seeds(folder: Path) -> list[int]:
    record = read_row(folder)
    return [] if record is None else [int(seed) for seed in record["seeds"]]


def read_points(folder: Path) -> list[dict[str, Any]]:
    """The points of a study without rows."""
    path = folder / "points.json"
    return read_sealed(path)["points"] if path.exists() else []


def add(
    folder: Path,
    config: dict[str, Any],
    tables: tuple[pl.DataFrame, pl.DataFrame],
    steps: int,
    known: dict[int, dict[str, Any]],
) -> None:
    """Add seeds to the row of a folder, from their tables of episodes and updates. `known` has the
    rest of each seed: `final`, `code`, `versions`, `train_seconds`."""
    episodes, metrics = (table.filter(pl.col("seed").is_in(list(known))) for table in tables)
    blocks = thin(episodes, metrics, config, steps)
    seeds = {
        seed: measure(config, episodes, metrics, steps, seed) | more for seed, more in known.items()
    }
    if (record := read_row(folder)) is not None:
        kept = read_blocks(folder, record).filter(~pl.col("seed").is_in(list(seeds)))
        blocks = pl.concat([kept, blocks], how="diagonal_relaxed").sort("seed", "block")
        seeds = {int(seed): one for seed, one in record["seeds"].items()} | seeds
    buffer = io.BytesIO()
    blocks.write_parquet(buffer, compression="zstd", statistics=False)
    data = buffer.getvalue()
    make_folder(folder)
    write_atomically(folder / _name_of(data), data)
    content = {
        "row": folder.name,
        "config": config | {"training": config["training"] | {"seeds": sorted(seeds)}},
        "steps": steps,
        "blocks": _name_of(data),
        "seeds": {str(seed): seeds[seed] for seed in sorted(seeds)},
    }
    write_sealed(folder / "row.json", content)
    for path in folder.glob("blocks-*.parquet"):  # also what a killed process left
        if path.name != content["blocks"]:
            path.unlink()
