"""The paper's sweep over epsilon (fig:eps_sweep): dynamics, calibration, and the time of the
collapse from 0.3 to 0.1."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from canary.reporting.statistics import collapse_time, is_violation, running_rate
from canary.studies.cells import ABOUT_FINAL, FINAL_COLUMNS, final_cells, final_numbers, with_error
from canary.studies.curves import curve
from canary.studies.page import paths_of, shown, write_data, write_page
from canary.studies.rows import Row

EPISODES = 50  # that a running rate is taken of


def save(
    results: Path, study: dict[str, Any], rows: list[Row], problems: list[str]
) -> dict[str, Path]:
    """Write table.md, table.csv and epsilon-sweep.png."""
    data, paths = [calibration(row) for row in rows], paths_of(results, "epsilon-sweep.png")
    write_data(results, data)
    write_page(
        results,
        study,
        "P is of the second half of training (± standard error over seeds).\nThe collapse is the "
        "median time\n"
        f"in which the violation rate of the last {EPISODES} episodes fell from 0.3 to 0.1, over "
        "the seeds that did.\n"
        "The paper (500 seeds): P settles 2-4 times below ε, and the collapse takes about 20,000 "
        f"steps at every ε.\n{ABOUT_FINAL}",
        (
            "variant",
            "ε",
            "P",
            "ε / P",
            "J",
            "collapse, steps",
            *FINAL_COLUMNS,
            "seeds × steps",
            "code",
        ),
        [_cells(row) for row in data],
        problems,
        ("dynamics and calibration", "epsilon-sweep.png"),
    )
    _figure(rows, data, study, paths["figure"])
    return paths


def calibration(row: Row) -> dict[str, Any]:
    """Threshold and converged violation probability, and how long the collapse took on the median
    seed."""
    times = collapse_times(row)
    summary = row.summary
    violation = summary["violation_probability"]
    return {
        "variant": row.name,
        "epsilon": summary["epsilon"],
        "violation": violation,
        "violation_error": summary["violation_standard_error"],
        "below_threshold": summary["epsilon"] / violation if violation else None,
        "collapse_steps": float(np.median(times)) if times else None,
        "collapsed_seeds": len(times),
        "seeds": summary["seeds"],
        "steps": summary["total_steps"],
        "reward": summary["return_mean"],
        **final_numbers(row),
        "code": " ".join(row.codes),
    }


def collapse_times(row: Row) -> list[float]:
    """Of the seeds that fell from 0.3 to 0.1, in steps."""
    times = []
    for seed in row.table("episodes").filter(pl.col("valid")).partition_by("seed"):
        violated = is_violation(seed["cost"].to_numpy(), row.summary["limit"])
        updates, rate = running_rate(violated, seed["iteration"].to_numpy(), EPISODES)
        time = collapse_time((updates + 1.0) * row.batch, rate)
        if time is not None:
            times.append(time)
    return times


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["variant"],
        f"{row['epsilon']:g}",
        with_error(row["violation"], row["violation_error"]),
        shown(row["below_threshold"], ".1f"),
        shown(row["reward"], ".3f"),
        f"{shown(row['collapse_steps'], ',.0f')} ({row['collapsed_seeds']} of {row['seeds']})",
        *final_cells(row),
        f"{row['seeds']} × {row['steps']:,}",
        row["code"],
    )


def _figure(rows: list[Row], data: list[dict[str, Any]], study: dict[str, Any], path: Path) -> None:
    import matplotlib.pyplot as plt

    from canary.reporting.figures import STYLE, save, show_steps

    families = list(dict.fromkeys(row.name.rpartition("-")[0] for row in rows))
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            1,
            1 + len(families),
            figsize=(3.9 * (1 + len(families)), 3.4),
            layout="constrained",
            squeeze=False,
        )
        for axes, family in zip(panels[0], families, strict=False):
            here = [row for row in rows if row.name.rpartition("-")[0] == family]
            shades = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(here)))
            _draw_curves(axes, here, shades)
            axes.set(
                title=f"{family}: P(cost > {here[0].summary['limit']:g})",
                xlabel="environment steps per seed",
            )
            show_steps(axes).legend(fontsize=8)
        _draw_converged(panels[0, -1], families, data)
        save(figure, path)


def _draw_curves(axes: Any, rows: list[Row], shades: Any) -> None:
    """The violation rate over training, a line with its spread for each epsilon."""
    for row, shade in zip(rows, shades, strict=True):
        line = curve(row)
        mean, spread = (line[name].to_numpy() for name in ("violation", "violation_deviation"))
        low, high = np.maximum(mean - spread, 0), mean + spread
        axes.plot(line["steps"], mean, color=shade, label=f"ε = {row.summary['epsilon']:g}")
        axes.fill_between(line["steps"], low, high, color=shade, alpha=0.12)


def _draw_converged(axes: Any, families: list[str], data: list[dict[str, Any]]) -> None:
    """Where training ends, over what was asked for; on the dashed line they agree."""
    from canary.reporting.figures import GREY

    rates = [row["violation"] for row in data if row["violation"] is not None]
    lowest = min([1e-3, *(rate / 3 for rate in rates if rate > 0)])  # room below every marker
    for family, marker in zip(families, "osD^", strict=False):
        points = [
            row
            for row in data
            if row["variant"].rpartition("-")[0] == family and row["violation"] is not None
        ]
        y = [max(row["violation"], 1.5 * lowest) for row in points]
        error = [row["violation_error"] or 0.0 for row in points]
        x = [row["epsilon"] for row in points]
        axes.errorbar(x, y, yerr=error, marker=marker, label=family, linewidth=1)
    ends = [min(row["epsilon"] for row in data), max(row["epsilon"] for row in data)]
    axes.plot(ends, ends, color=GREY, linestyle="--", linewidth=1, label="P = ε")
    zero = f", 0 at {1.5 * lowest:.1g}" if 0 in rates else ""
    axes.set(xscale="log", yscale="log", xlabel="ε", title=f"converged P{zero}", ylim=(lowest, 1))
    axes.legend(fontsize=8)
