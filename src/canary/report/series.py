"""The tables of a run as the arrays that its page draws; plain lists, so that they can be JSON."""

from typing import Any

import numpy as np
import polars as pl

from canary.numerics.binomial import clopper_pearson_interval
from canary.numerics.tiers import Tier

BINS = 40
BLOCKS = 60
WIDEST = 3.0  # limits: the histogram gathers what costs more in its last bar


def plain(values: Any, digits: int = 6) -> list[float | None]:
    """Numbers for JSON: rounded, and None where there is none."""
    return [
        float(f"{value:.{digits}g}") if value is not None and np.isfinite(value) else None
        for value in values
    ]


def curves(blocks: pl.DataFrame) -> dict[str, Any]:
    """Return, cost and violation rate in blocks of training (`reporting.figures.training_blocks`):
    of every seed, and of all with a binomial band."""
    whole = (
        blocks.group_by("steps")
        .agg(
            pl.col("return").mean(), pl.col("cost").mean(), pl.col("deviation").mean(),
            pl.col("violations").sum(), pl.col("count").sum(),
        )
        .sort("steps")
    )  # fmt: skip
    violations, count = whole["violations"].to_numpy(), whole["count"].to_numpy()
    lower, upper = clopper_pearson_interval(violations, count)
    return {
        "pooled": {
            "steps": plain(whole["steps"], 9),
            "return": plain(whole["return"]),
            "cost": plain(whole["cost"]),
            "deviation": plain(whole["deviation"]),
            "violation": plain(violations / count),
            "lower": plain(lower),
            "upper": plain(upper),
        },
        "seeds": {
            str(rows["seed"][0]): {
                "steps": plain(rows["steps"], 9),
                **{name: plain(rows[name]) for name in ("return", "cost", "violation")},
            }
            for rows in blocks.partition_by("seed", maintain_order=True)
        },
    }


def costs(episodes: pl.DataFrame, limit: float, epsilon: float | None) -> dict[str, Any] | None:
    """Histogram of the episode cost with its tail measures at epsilon, if there is one; None
    without an episode."""
    cost = episodes.filter(pl.col("valid"))["cost"].to_numpy().astype(float)
    cost = cost[np.isfinite(cost)]
    if not cost.size:
        return None
    risk = {"var": None, "cvar": None}
    if epsilon is not None:
        risk["var"] = float(
            np.sort(cost)[::-1][min(int(epsilon * len(cost) * (1 + 1e-12)), len(cost) - 1)]
        )
        risk["cvar"] = float(risk["var"] + np.maximum(cost - risk["var"], 0).mean() / epsilon)
    top = max(limit * 1.25, min(float(cost.max()), WIDEST * limit), 1e-9)
    if np.all(cost == np.round(cost)) and top <= 4 * BINS:  # counts: a bar each
        edges = np.arange(-0.5, np.ceil(top) + 1)
    else:
        edges = np.linspace(min(0.0, float(cost.min())), top, BINS + 1)
    counts, _ = np.histogram(np.clip(cost, edges[0], edges[-1]), edges)
    return {
        "edges": plain(edges),
        "counts": counts.tolist(),
        "beyond": int((cost > edges[-1]).sum()),
        "episodes": int(cost.size),
        "mean": float(cost.mean()),
        "deviation": float(cost.std()),
        **risk,
        "violations": int((cost > limit).sum()),
    }


AVERAGED = (
    "backtracks", "accepted", "kl_fraction", "shaped_bound", "dead_zone", "signal_fraction", "entropy",
)  # fmt: skip


def updates(metrics: pl.DataFrame) -> dict[str, Any] | None:
    """Tiers, line search and bound over training, all seeds together; None for methods that have no
    such steps."""
    if "tier" not in metrics.columns or metrics.is_empty():
        return None
    last = int(metrics["iteration"].max() or 0) + 1  # type: ignore[arg-type]
    width = max(1, last // BLOCKS)
    groups = metrics.with_columns(block=pl.col("iteration") // width).group_by("block")
    table = groups.agg(
        pl.col("steps").mean(),
        *(pl.col(name).fill_nan(None).mean() for name in AVERAGED if name in metrics.columns),
        **{f"tier_{tier.value}": (pl.col("tier") == tier.value).mean() for tier in Tier},
    )
    return _drawn_updates(table.sort("block"))


def stored_updates(blocks: pl.DataFrame) -> dict[str, Any] | None:
    """The same from the blocks of a study's row (`studies.store.thin`)."""
    table = blocks.group_by("block").mean().sort("block")
    table = table.rename({name: name.removeprefix("update_") for name in table.columns})
    return (
        _drawn_updates(table) if any(name.startswith("tier_") for name in table.columns) else None
    )


def _drawn_updates(table: pl.DataFrame) -> dict[str, Any]:
    shares = {tier: f"tier_{tier.value}" for tier in Tier}
    nothing = [0.0] * len(table)
    return {
        "steps": plain(table["steps"], 9),
        "tiers": {
            tier.label: plain(table[name] if name in table.columns else nothing)
            for tier, name in shares.items()
        },
        **{name: plain(table[name]) for name in AVERAGED if name in table.columns},
    }
