"""The paper's figure of training (fig:benchmark): return and violation probability over steps."""

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from canary.reporting.figures import RED, canvas, legend_beside, show_steps
from canary.studies.page import Page, Paths, Row

FLOOR = 1e-3  # where the logarithmic axis ends
VALUES = ("return", "violation")
DASHES = {"fast": "-", "paper": "--", "authors": ":"}


def save(page: Page) -> Paths:
    lines = {row.name: curve(row) for row in page.shown}
    frames = [line.select(pl.lit(name).alias("row"), pl.all()) for name, line in lines.items()]
    return page.write(
        "Lines are means over seeds, bands one standard deviation, in blocks of training; a rate "
        f"below {FLOOR:g} is\ndrawn there. Dashed: the `paper` preset; dotted: `authors`.",
        page.lines(lambda row: row.size, lambda row: {"line": f"{row.environment}: {row.label}"}),
        pl.concat(frames).with_columns(pl.col(pl.Float64).round(6)) if frames else [],
        _figure(page.shown, lines) if lines else None,
    )


def curve(row: Row) -> pl.DataFrame:
    """Mean and standard deviation over seeds of return and violation rate, per block of training."""
    rates = row.blocks.filter(pl.col("episodes") > 0).with_columns(
        **{"return": pl.col("reward") / pl.col("episodes")},
        violation=pl.col("violations") / pl.col("episodes"),
    )
    means = (pl.col(name).mean() for name in VALUES)
    deviations = (pl.col(name).std(ddof=0).alias(f"{name}_deviation") for name in VALUES)
    steps = pl.col("steps").mean().cast(pl.Int64)
    return rates.group_by("block").agg(steps, *means, *deviations).sort("block").drop("block")


def draw_curve(axes: Axes, line: pl.DataFrame, name: str, floor: float, **style: Any) -> None:
    """A mean over seeds with a band of one standard deviation."""
    mean, spread = line[name].to_numpy(), line[f"{name}_deviation"].to_numpy()
    axes.plot(line["steps"], np.maximum(mean, floor), linewidth=1.3, **style)
    band = np.maximum(mean - spread, floor), mean + spread
    axes.fill_between(line["steps"], *band, color=style["color"], alpha=0.12, linewidth=0)


def _figure(rows: list[Row], lines: dict[str, pl.DataFrame]) -> Figure:
    environments = list(dict.fromkeys(row.environment for row in rows))
    methods = list(dict.fromkeys(row.algorithm for row in rows))
    with canvas(len(environments), 2, (9, 2.6 * len(environments))) as (figure, grid):
        for environment, (left, right) in zip(environments, grid, strict=True):
            here = [row for row in rows if row.environment == environment]
            for row in here:
                style = {"color": f"C{methods.index(row.algorithm)}", "label": row.label}
                style["linestyle"] = DASHES[row.about["preset"]]
                draw_curve(left, lines[row.name], "return", -np.inf, **style)
                draw_curve(right, lines[row.name], "violation", FLOOR, **style)
            for epsilon in sorted({row.epsilon for row in here if row.epsilon is not None}):
                right.axhline(epsilon, color=RED, linestyle="--", linewidth=1)
            right.set(yscale="log", ylim=(FLOOR, 1))
            show_steps(left).set_title(f"{environment}: return")
            show_steps(right).set_title(f"P(cost > {here[0].limit:g}); dashed red: ε")
            legend_beside(right)
    return figure
