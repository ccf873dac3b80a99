"""Runs beside each other: their numbers over the second half of training with intervals over seeds,
and their curves.

Intervals are Student's over seeds, at 95%: they say how far another set of seeds might lie. The
first run is the one that the others are compared with, seed by seed where both have the same seeds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from canary.constraints import Chance, Constraint
from canary.errors import CanaryError
from canary.reporting.figures import STYLE, figure_arguments, plt, save, show_steps, training_blocks
from canary.reporting.records import ComparedRun, Comparison, Estimate, Paired
from canary.reporting.statistics import paired_difference, student_interval
from canary.reporting.summary import summarise_run
from canary.runs import directory
from canary.runs.settings import differing, settings_text


def compare_runs(runs: Sequence[Path], figure: Path | None = None) -> Comparison:
    """The numbers of runs of one environment beside each other; `figure` names a .png of their
    curves."""
    if len(runs) < 2:
        raise CanaryError("A comparison needs at least two runs: canary compare RUN RUN.")
    if len({run.resolve() for run in runs}) < len(runs):
        raise CanaryError("The same run is named twice; compare different ones.")
    summaries = [summarise_run(run) for run in runs]
    places = list(dict.fromkeys(summary["env"] for summary in summaries))
    if len(places) > 1:
        raise CanaryError(
            f"Returns on {' and '.join(places)} cannot be compared; name runs of one environment."
        )
    differences = differing([directory.read_config(run) for run in runs])
    compared = [
        _compared(run, summary, differs, summaries[0])
        for run, summary, differs in zip(runs, summaries, differences, strict=True)
    ]
    comparison: Comparison = {"env": places[0], "runs": compared}
    if figure is not None:
        save(comparison_figure(runs, comparison), figure)
        comparison["figure"] = str(figure)
    return comparison


def _compared(
    run: Path, summary: dict[str, Any], differs: dict[str, Any], first: dict[str, Any]
) -> ComparedRun:
    per_seed = {"return": summary["return_per_seed"], "constraint": summary["constraint_per_seed"]}
    safe = [
        value <= summary["constraint_allowed"]
        for value in per_seed["constraint"]
        if value is not None
    ]
    same = summary is not first and summary["constraint_text"] == first["constraint_text"]
    return {
        "run": run.name,
        "differs": differs,
        "algorithm": summary["algorithm"],
        "status": summary["status"],
        "seeds": summary["seeds"],
        "steps": summary["total_steps"],
        "return_mean": _estimate(per_seed["return"]),
        "constraint_text": summary["constraint_text"],
        "constraint_allowed": summary["constraint_allowed"],
        "constraint_value": _estimate(per_seed["constraint"], least=0.0),
        "safe_seeds": sum(safe),
        "return_against_first": None
        if summary is first
        else _paired(summary, first, "return_per_seed"),
        "constraint_against_first": _paired(summary, first, "constraint_per_seed")
        if same
        else None,
    }


def _estimate(values: list[float | None], least: float = -np.inf) -> Estimate | None:
    found = student_interval([value for value in values if value is not None])
    if found is None:
        return None
    mean, half = found
    if half is None:
        return {"mean": mean, "lower": None, "upper": None}
    return {"mean": mean, "lower": max(mean - half, least), "upper": mean + half}


def _paired(one: dict[str, Any], other: dict[str, Any], name: str) -> Paired | None:
    """The mean difference over the seeds that both have, with the half-width of its interval."""
    here, there = (dict(zip(each["seed_ids"], each[name], strict=True)) for each in (one, other))
    seeds = [seed for seed in here if seed in there]
    found = paired_difference([here[seed] for seed in seeds], [there[seed] for seed in seeds])
    if found is None:
        return None
    return {"seeds": len(seeds), "difference": found[0], "half_width": found[1]}


def comparison_figure(runs: Sequence[Path], comparison: Comparison) -> Figure:
    """Return and constraint over training: a line per run, the mean over its seeds, with a 95%
    band."""
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
        colours = plt.get_cmap("tab10").colors  # type: ignore[attr-defined]
        for index, (run, about) in enumerate(zip(runs, comparison["runs"], strict=True)):
            facts = figure_arguments(directory.read_config(run))
            constraint, colour = facts["constraint"], colours[index % len(colours)]
            episodes = directory.read(run, "episodes").filter(pl.col("valid"))
            if episodes.is_empty():
                continue
            blocks = training_blocks(episodes, constraint.limit, facts["batch"])
            label = settings_text(about["differs"]) or about["run"]
            _draw(left, blocks, "return", colour, label)
            _draw(right, _with_measure(blocks, constraint), "measured", colour, label)
            right.axhline(constraint.allowed, color=colour, linestyle="--", linewidth=0.8)
        chance = all(
            text.startswith("P(") for text in (one["constraint_text"] for one in comparison["runs"])
        )
        if chance:
            right.set_yscale("symlog", linthresh=0.001)
            right.set_ylim(0, 1)
        left.set_title("mean return")
        right.set_title("what the constraint limits (dashed: allowed)")
        for axes in (left, right):
            axes.set_xlabel("environment steps per seed")
            show_steps(axes)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", fontsize=8)
        figure.suptitle(
            f"{comparison['env']}: means over seeds, 95% bands", x=0.01, ha="left", fontsize=10
        )
    return figure


def _with_measure(blocks: pl.DataFrame, constraint: Constraint) -> pl.DataFrame:
    if isinstance(constraint, Chance):
        return blocks.with_columns(measured=pl.col("violation"))
    values = [constraint.measure(costs.to_numpy()) for costs in blocks["costs"]]
    return blocks.with_columns(measured=pl.Series(values, dtype=pl.Float64))


def _draw(axes: Axes, blocks: pl.DataFrame, column: str, colour: Any, label: str) -> None:
    steps, means, lower, upper = [], [], [], []
    for (step,), part in (
        blocks.sort("steps").partition_by("steps", as_dict=True, maintain_order=True).items()
    ):
        found = student_interval(part[column].to_list())
        assert found is not None  # a block has episodes
        mean, half = found
        steps.append(step)
        means.append(mean)
        lower.append(mean - (half or 0))
        upper.append(mean + (half or 0))
    axes.plot(steps, means, color=colour, linewidth=1.6, label=label)
    axes.fill_between(steps, lower, upper, color=colour, alpha=0.18, linewidth=0)
