"""The paper's figure of training (fig:benchmark): return and violation probability over steps, a
row per environment."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from canary.studies.page import paths_of, write_data, write_page
from canary.studies.rows import Row

BLOCKS = 40
FLOOR = 1e-3  # where the logarithmic axis ends


def save(
    results: Path, study: dict[str, Any], rows: list[Row], problems: list[str]
) -> dict[str, Path]:
    """Write training-curves.png and the data of its lines; lines are means over seeds, bands one
    standard deviation."""
    lines = {row.name: curve(row) for row in rows}
    _figure(rows, lines, results / "training-curves.png")
    frames = [line.with_columns(variant=pl.lit(name)) for name, line in lines.items()]
    write_data(
        results, pl.concat(frames).select("variant", pl.exclude("variant")), float_precision=6
    )
    write_page(
        results,
        study,
        "Lines are means over seeds, bands one standard deviation,\n"
        f"in {BLOCKS} blocks of training; a rate below {FLOOR:g} is drawn there. Dashed: as "
        "published (preset `paper`).",
        ("line", "seeds × steps", "code"),
        [_cells(row) for row in rows],
        problems,
        ("training curves", "training-curves.png"),
    )
    return paths_of(results, "training-curves.png")


def _figure(rows: list[Row], lines: dict[str, pl.DataFrame], path: Path) -> None:
    """A row of two panels per environment: return, and violation probability."""
    import matplotlib.pyplot as plt

    from canary.reporting.figures import GREY, RED, STYLE, save, show_steps

    environments = list(dict.fromkeys(row.summary["env"] for row in rows))
    methods = list(dict.fromkeys(row.summary["algorithm"] for row in rows))
    colours = dict(zip(methods, plt.get_cmap("tab10").colors, strict=False))  # type: ignore[attr-defined]
    with plt.rc_context(STYLE):
        size = (9, 2.6 * len(environments))
        figure, grid = plt.subplots(
            len(environments), 2, figsize=size, layout="constrained", squeeze=False
        )
        for environment, (left, right) in zip(environments, grid, strict=True):
            here = [row for row in rows if row.summary["env"] == environment]
            for row in here:
                line, colour = lines[row.name], colours[row.summary["algorithm"]]
                style = "--" if row.summary["preset"] == "paper" else "-"
                for axes, name in ((left, "return"), (right, "violation")):
                    mean, spread = line[name].to_numpy(), line[f"{name}_deviation"].to_numpy()
                    low, high = mean - spread, mean + spread
                    if name == "violation":
                        mean, low = np.maximum(mean, FLOOR), np.maximum(low, FLOOR)
                    axes.plot(
                        line["steps"], mean, style, color=colour, label=_method(row), linewidth=1.3
                    )
                    axes.fill_between(
                        line["steps"], low, high, color=colour, alpha=0.12, linewidth=0
                    )
            epsilons = sorted({row.summary["epsilon"] for row in here} - {None})
            for epsilon in epsilons:
                right.axhline(epsilon, color=RED, linestyle="--", linewidth=1)
            right.set(yscale="log", ylim=(FLOOR, 1))
            show_steps(left), show_steps(right)
            limit = here[0].summary["limit"]
            left.set(
                title=f"{environment}, limit {limit:g}: return", xlabel="environment steps per seed"
            )
            right.set_xlabel("environment steps per seed")
            allowed = ", ".join(
                f"{epsilon:g}" for epsilon in epsilons
            )  # a label would cover curves
            right.set_title(f"P(cost > {limit:g}); dashed red: ε = {allowed}")
            right.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, labelcolor=GREY)
        save(figure, path)


def _method(row: Row) -> str:
    return f"{row.summary['algorithm']} ({row.summary['preset']})"


def curve(row: Row) -> pl.DataFrame:
    """Mean and standard deviation over seeds of return and violation rate in equal blocks of
    training."""
    done = int(row.summary["total_steps"]) // row.batch
    width = max(1, done // BLOCKS)
    seeds = (
        row.table("episodes").filter(pl.col("valid") & (pl.col("iteration") < done))
        .with_columns(
            block=(pl.col("iteration") // width).clip(upper_bound=max(done // width - 1, 0)),
            violation=(pl.col("cost") > row.summary["limit"]).cast(pl.Float64),
        )
        .group_by("seed", "block").agg(pl.col("return").cast(pl.Float64).mean(), pl.col("violation").mean())
    )  # fmt: skip
    return (
        seeds.group_by("block").agg(
            pl.col("return").mean(), pl.col("violation").mean(),
            return_deviation=pl.col("return").std(ddof=0), violation_deviation=pl.col("violation").std(ddof=0),
        )
        .sort("block")
        .select(
            steps=((pl.col("block") + 0.5) * width * row.batch).cast(pl.Int64),
            **{name: pl.col(name) for name in ("return", "return_deviation", "violation", "violation_deviation")},
        )
    )  # fmt: skip


def _cells(row: Row) -> tuple[str, ...]:
    size = f"{row.summary['seeds']} × {row.summary['total_steps']:,}"
    return f"{row.summary['env']}: {_method(row)}", size, " ".join(row.codes)
