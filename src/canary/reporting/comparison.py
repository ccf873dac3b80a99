"""Compare runs of one environment over the second half of training, with Student 95% intervals over
seeds. Each run is compared with the first, seed by seed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from canary.constraints import from_dict, one_cost
from canary.errors import CanaryError
from canary.reporting.figures import comparison_figure, save
from canary.reporting.results import of_run
from canary.reporting.statistics import over_seeds
from canary.reporting.summary import summarise_run
from canary.runs.directory import read_config
from canary.runs.settings import differing, settings_text


def compare_runs(runs: Sequence[Path], figure: Path | None = None) -> dict[str, Any]:
    """Numbers of several runs; `figure` names a .png file for their curves."""
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
    configs = [read_config(run) for run in runs]
    differences = differing(configs)
    compared = [
        _compared(run, summary, differs, summaries[0])
        for run, summary, differs in zip(runs, summaries, differences, strict=True)
    ]
    comparison: dict[str, Any] = {"env": places[0], "runs": compared}
    if figure is not None:
        for config in configs:
            one_cost(from_dict(config["constraint"]), "The figure of a comparison")
        labels = [settings_text(one["differs"]) or one["run"] for one in compared]
        results = [of_run(run)[0] for run in runs]
        save(comparison_figure(list(zip(labels, results, strict=True))), figure)
        comparison["figure"] = str(figure)
    return comparison


def _compared(
    run: Path, summary: dict[str, Any], differs: dict[str, Any], first: dict[str, Any]
) -> dict[str, Any]:
    measured, allowed = summary["constraint_per_seed"], summary["constraint_allowed"]
    return {
        "run": run.name,
        "differs": differs,
        "algorithm": summary["algorithm"],
        "status": summary["status"],
        "seeds": summary["seeds"],
        "steps": summary["total_steps"],
        "return_mean": _estimate(summary["return_per_seed"]),
        "constraint_text": summary["constraint_text"],
        "constraint_allowed": allowed,
        "constraint_value": _estimate(measured, least=0.0),
        "safe_seeds": sum(value is not None and value <= allowed for value in measured),
        "return_against_first": None if summary is first else _paired(summary, first),
    }


def _estimate(values: Sequence[float | None], least: float = -np.inf) -> dict[str, Any] | None:
    mean, _, half = over_seeds(values)
    if mean is None:
        return None
    ends = (None, None) if half is None else (max(mean - half, least), mean + half)
    return {"mean": mean, "lower": ends[0], "upper": ends[1]}


def _paired(one: dict[str, Any], first: dict[str, Any]) -> dict[str, Any] | None:
    """The mean difference of returns over common seeds; None for fewer than two."""
    here, there = (
        dict(zip(each["seed_ids"], each["return_per_seed"], strict=True)) for each in (one, first)
    )
    shared = [seed for seed in here if None not in (here[seed], there.get(seed))]
    mean, _, half = over_seeds(here[seed] - there[seed] for seed in shared)
    return None if half is None else {"seeds": len(shared), "difference": mean, "half_width": half}
