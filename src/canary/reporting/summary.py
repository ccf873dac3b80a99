"""The summary of a run or of an evaluation: the numbers of the paper's table, as JSON data.

A run's summary is a function of its directory, so an interrupted run has one too. It describes
whole episodes in the second half of the updates so far. Lists have an entry per seed, in the order
of `seed_ids`. None (null in JSON) means unknown.
"""

import math
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import polars as pl

from canary.constraints import Constraint, Joint, from_dict, to_dict
from canary.errors import CanaryError
from canary.numerics.statistics import measurement
from canary.reporting.results import (
    batch_of,
    halves,
    measures,
    measures_of_training,
    warning,
)
from canary.reporting.statistics import over_seeds, safe_fraction, seen_by
from canary.runs.directory import read_config, read_manifest
from canary.runs.files import read_sealed
from canary.runs.tables import read_table

EVALUATION = "evaluation.json"  # the last evaluation of a run's newest policies
YARDSTICK = "yardstick.json"  # constant and random actions, if a seed is stuck or timid
OVER_SEEDS = {
    "violation": ("violation_probability", "violation_standard_error"),
    "violation_whole": ("violation_probability_whole", None),
    "jitter": ("violation_jitter", "jitter_standard_error"),
    "return": ("return_mean", "return_standard_error"),
    "cost": ("cost_mean", None),
    "cost_deviation": ("cost_deviation", None),
    "length": ("length_mean", None),
    "constraint": ("constraint_value", "constraint_standard_error"),
}  # measures of a seed: the names of their mean over seeds and of its standard error


class Summary(TypedDict):
    """Method, environment, and measures of episodes."""

    env: str
    algorithm: str
    preset: str
    constraint: dict[str, Any]
    limit: float
    epsilon: float | None
    seeds: int
    seed_ids: list[int]
    total_steps: int
    violation_probability: float | None
    violation_standard_error: float | None
    violation_jitter: float | None
    jitter_standard_error: float | None
    return_mean: float | None
    return_standard_error: float | None
    cost_mean: float | None
    cost_deviation: float | None
    length_mean: float | None
    episodes_per_seed: list[int]
    violation_per_seed: list[float | None]
    jitter_per_seed: list[float | None]
    return_per_seed: list[float | None]
    cost_per_seed: list[float | None]
    cost_deviation_per_seed: list[float | None]
    length_per_seed: list[float | None]
    constraint_text: str
    constraint_label: str
    constraint_allowed: float
    constraint_value: float | None
    """The constrained quantity, as the mean over seeds."""
    constraint_standard_error: float | None
    constraint_interval: list[float] | None
    """95% interval from all episodes together."""
    constraint_per_seed: list[float | None]
    constraint_interval_per_seed: list[list[float] | None]
    safe_fraction: float | None
    constraints: NotRequired[list[dict[str, Any]]]
    """With several costs, these measures for each constraint. The summary itself then has those of
    the worst, in units of its allowed value."""
    steps_per_second: float | None
    wall_seconds: float | None
    run_dir: NotRequired[str]


class TrainingSummary(Summary):
    """Summary of the second half of the updates so far."""

    violation_probability_whole: float | None
    """P over all of training."""
    violation_whole_per_seed: list[float | None]
    status: str
    planned_steps: int
    warnings: dict[str, str]
    """Warnings by seed, if it is stuck or timid."""
    yardstick: str | None
    """With warnings: whether a constant or random action stays within the limit."""
    start: dict[str, Any] | None
    """The run or policy from which training started, and the seed from which each seed started."""
    final_check: "EvaluationSummary | None"
    """The newest policies, frozen, on fresh episodes: the check at the end of training, or the last
    evaluation. None if there was none since the last update."""


class EvaluationSummary(Summary):
    """Summary of fresh episodes of frozen policies."""

    deterministic: bool
    evaluation_seed: int
    updates: int
    policy_sha256: dict[str, str]
    video: NotRequired[dict[str, Any]]
    environment_changes: NotRequired[list[str]]
    """Differences from the environment of training that `accept_change` allowed."""


def summarise_run(run: Path) -> dict[str, Any]:
    """The summary of a run's training, from its files."""
    config, manifest = read_config(run), read_manifest(run)
    metrics, episodes = (read_table(run, kind) for kind in ("metrics", "episodes"))
    seeds, steps = config["training"]["seeds"], manifest["steps"]
    updates, seconds = steps // batch_of(config), manifest.get("train_seconds")
    found = {str(seed): warning(config, metrics, episodes, updates, seed) for seed in seeds}
    return {
        **_head(config, seeds),
        "total_steps": steps,
        **_measured(episodes, seeds, from_dict(config["constraint"]), updates),
        "warnings": {seed: sentence for seed, sentence in found.items() if sentence},
        "steps_per_second": steps * len(seeds) / seconds if seconds else None,
        "status": manifest["status"],
        "planned_steps": manifest["total_steps"],
        "wall_seconds": manifest.get("wall_seconds"),
        "start": manifest.get("start"),
        "final_check": read_evaluation(run, updates),
        "yardstick": (_read(run / YARDSTICK) or {}).get("sentence"),
        "run_dir": str(run),
    }


def summarise_evaluation(run: Path, episodes: pl.DataFrame, seconds: float) -> dict[str, Any]:
    """The summary of all fresh episodes of frozen policies, without jitter."""
    config = read_config(run)
    seeds = episodes["seed"].unique(maintain_order=True).to_list()
    steps = int(episodes["length"].sum())
    return {
        **_head(config, seeds),
        "total_steps": steps,
        **_measured(episodes, seeds, from_dict(config["constraint"])),
        "steps_per_second": steps / seconds,
        "wall_seconds": round(seconds, 2),
        "run_dir": str(run),
    }


def read_evaluation(run: Path, updates: int) -> dict[str, Any] | None:
    """The last evaluation of the policies after `updates` updates, or None."""
    stored = _read(run / EVALUATION)
    return stored if stored is not None and stored.get("updates") == updates else None


def _read(path: Path) -> dict[str, Any] | None:
    """A sealed file; None if it is missing or damaged."""
    try:
        return read_sealed(path)
    except CanaryError:
        return None


def _head(config: dict[str, Any], seeds: list[int]) -> dict[str, Any]:
    """Method and environment from a stored configuration, without JAX."""
    return {
        "env": str(config["environment"]["name"]),
        "algorithm": str(config["algorithm"]["name"]),
        "preset": str(config["preset"]),
        **_terms(from_dict(config["constraint"])),
        "seeds": len(seeds),
        "seed_ids": [int(seed) for seed in seeds],
    }


def _terms(constraint: Constraint) -> dict[str, Any]:
    """Constraint, limit and epsilon; lists if there are several."""
    if isinstance(constraint, Joint):
        each = [_terms(part) for part in constraint.parts]
        return {name: [terms[name] for terms in each] for name in each[0]}
    epsilon = None if constraint.kind == "mean" else constraint.share
    return {"constraint": to_dict(constraint), "limit": constraint.limit, "epsilon": epsilon}


def _measured(
    episodes: pl.DataFrame, seeds: list[int], constraint: Constraint, updates: int | None = None
) -> dict[str, Any]:
    """All measures, per seed and over seeds: over the second half of the updates of training, or
    over all episodes of an evaluation.

    With several constraints these are the measures of the worst; `constraints` lists those of each.
    """
    counted = episodes if updates is None else halves(episodes, updates)[0]
    own = [counted.filter(pl.col("seed") == seed) for seed in seeds]
    if updates is None:
        measured = [measures(part, constraint) for part in own]
    else:
        played = (episodes.filter(pl.col("seed") == seed) for seed in seeds)
        measured = [measures_of_training(part, constraint, updates) for part in played]
    found: dict[str, Any] = {
        "episodes_per_seed": [one["episodes"] for one in measured],
        "constraint_text": constraint.text,
        "constraint_label": constraint.label,
        "constraint_allowed": constraint.allowed,
        "constraint_interval": _interval(counted, constraint),
        "constraint_interval_per_seed": [_interval(part, constraint) for part in own],
    }
    for name, (mean, error) in OVER_SEEDS.items():
        if name in measured[0]:
            column = [one[name] for one in measured]
            estimate = over_seeds(column)
            found |= {f"{name}_per_seed": column, mean: estimate.mean}
            found |= {} if error is None else {error: estimate.error}
    found["safe_fraction"] = safe_fraction(found["constraint_per_seed"], constraint.allowed)
    if isinstance(constraint, Joint):
        found["constraints"] = [
            _terms(part) | _measured(seen_by(part, episodes), seeds, part, updates)
            for part in constraint.parts
        ]
    return found


def _interval(episodes: pl.DataFrame, constraint: Constraint) -> list[float] | None:
    """The 95% interval of the constrained quantity."""
    measured = measurement(constraint, episodes["cost"].to_numpy())
    if measured is None or not all(map(math.isfinite, measured)):
        return None
    return [measured.lower, measured.upper]
