"""The paper's figure of training (fig:benchmark): return and violation probability over steps."""

from pathlib import Path

import numpy as np
import polars as pl

from canary.studies.page import Page, Paths, Row

FLOOR = 1e-3  # where the logarithmic axis ends
VALUES = ("return", "violation")
DASHES = {"fast": "-", "paper": "--", "authors": ":"}


def save(page: Page) -> Paths:
    lines = {row.name: curve(row) for row in page.shown}
    figure = "training-curves.png" if lines else None
    if figure:
        _figure(page.shown, lines, page.folder / figure)
    frames = [line.select(pl.lit(name).alias("row"), pl.all()) for name, line in lines.items()]
    return page.table(
        "Lines are means over seeds, bands one standard deviation, in blocks of training; a rate "
        f"below {FLOOR:g} is\ndrawn there. Dashed: the `paper` preset; dotted: `authors`.",
        ("line", "seeds × steps", "code"),
        lambda row: [(*_names(row), row.size, row.codes)],
        pl.concat(frames).with_columns(pl.col(pl.Float64).round(6)) if frames else [],
        figure,
        _names,
    )


def curve(row: Row) -> pl.DataFrame:
    """Mean and standard deviation over seeds of return and violation rate, per block of training."""
    blocks = row.blocks().filter(pl.col("episodes") > 0)
    rates = blocks.with_columns(
        **{"return": pl.col("reward") / pl.col("episodes")},
        violation=pl.col("violations") / pl.col("episodes"),
    )
    return (
        rates.group_by("block")
        .agg(
            pl.col("steps").mean().cast(pl.Int64),
            *(pl.col(name).mean() for name in VALUES),
            *(pl.col(name).std(ddof=0).alias(f"{name}_deviation") for name in VALUES),
        )
        .sort("block")
        .drop("block")
    )


def _figure(rows: list[Row], lines: dict[str, pl.DataFrame], path: Path) -> None:
    import matplotlib.pyplot as plt

    from canary.reporting.figures import GREY, RED, STYLE, save, show_steps

    environments = list(dict.fromkeys(row.environment for row in rows))
    methods = list(dict.fromkeys(row.algorithm for row in rows))
    with plt.rc_context(STYLE):
        size = (9, 2.6 * len(environments))
        figure, grid = plt.subplots(
            len(environments), 2, figsize=size, layout="constrained", squeeze=False
        )
        for environment, panels in zip(environments, grid, strict=True):
            here = [row for row in rows if row.environment == environment]
            for row in here:
                style = f"C{methods.index(row.algorithm)}", DASHES[row.preset]
                for axes, name in zip(panels, VALUES, strict=True):
                    floor = FLOOR if name == "violation" else -np.inf
                    _line(axes, lines[row.name], name, style, row.label, floor)
            left, right = panels
            for epsilon in sorted({row.epsilon for row in here if row.epsilon is not None}):
                right.axhline(epsilon, color=RED, linestyle="--", linewidth=1)
            right.set(yscale="log", ylim=(FLOOR, 1))
            left.set_title(f"{environment}: return")
            right.set_title(f"P(cost > {here[0].limit:g}); dashed red: ε")
            for axes in panels:
                show_steps(axes).set_xlabel("environment steps per seed")
            right.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, labelcolor=GREY)
        save(figure, path)


def _line(axes, line: pl.DataFrame, name: str, style: tuple[str, str], label: str, floor: float):
    """A mean over seeds with a band of one standard deviation."""
    mean, spread = line[name].to_numpy(), line[f"{name}_deviation"].to_numpy()
    colour, dashes = style
    axes.plot(line["steps"], np.maximum(mean, floor), dashes, color=colour, label=label, linewidth=1.3)  # fmt: skip
    low = np.maximum(mean - spread, floor)
    axes.fill_between(line["steps"], low, mean + spread, color=colour, alpha=0.12, linewidth=0)


def _names(row: Row) -> tuple[str]:
    return (f"{row.about['environment']}: {row.label}",)
