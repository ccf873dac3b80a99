"""The summary of a run or of an evaluation: the numbers of the paper's table, as JSON data.

A run's summary is a pure function of its directory, so a run that was stopped has one too. It
describes the second half of the updates done so far, whole episodes only. A seed without an episode
has None (null in JSON), never 0.
"""

import math
from pathlib import Path
from typing import Any

import polars as pl

from canary.constraints import Constraint, Joint, from_dict, to_dict
from canary.errors import CanaryError
from canary.numerics.measurement import Measurement, measurement
from canary.reporting.diagnosis import diagnose, seed_series
from canary.reporting.statistics import (
    is_violation,
    mean_over_seeds,
    safe_fraction,
    seen_by,
    standard_error,
    violation_jitter,
)
from canary.runs.files import read_json, unsealed
from canary.runs.manifest import read_config, read_manifest
from canary.runs.tables import read_table

EVALUATION = "evaluation.json"  # the last evaluation of a run's newest policies
YARDSTICK = "yardstick.json"  # constant and random actions, where a seed is stuck or timid


def summarise_run(run: Path) -> dict[str, Any]:
    """The training of a run, from its stored files."""
    head, manifest = _head_of_run(run), read_manifest(run)
    metrics, episodes = (read_table(run, kind) for kind in ("metrics", "episodes"))
    summary = _of_training(
        head, episodes, metrics, manifest["steps"], manifest.get("train_seconds")
    )
    return summary | {
        "status": manifest["status"],
        "planned_steps": manifest["total_steps"],
        "wall_seconds": manifest.get("wall_seconds"),
        "start": manifest.get("start"),
        "final_check": read_evaluation(run, manifest["steps"] // head["batch"]),
        "yardstick": (_read(run / YARDSTICK) or {}).get("sentence"),
        "run_dir": str(run),
    }


def read_evaluation(run: Path, updates: int) -> dict[str, Any] | None:
    """The last evaluation of the policies after so many updates; None if there is none."""
    stored = _read(run / EVALUATION)
    return stored if stored is not None and stored.get("updates") == updates else None


def _read(path: Path) -> dict[str, Any] | None:
    """A sealed file; None if there is none, or none that can be read."""
    try:
        return unsealed(read_json(path), path) if path.exists() else None
    except CanaryError:
        return None


def summarise_tables(
    config: dict[str, Any],
    episodes: pl.DataFrame,
    metrics: pl.DataFrame,
    *,
    steps: int,
    seconds: float | None,
) -> dict[str, Any]:
    """The same for finished seeds that may come from several runs; `seconds` is the sum of their
    training times."""
    summary = _of_training(_head(config), episodes, metrics, steps, seconds)
    return summary | {"status": "finished", "planned_steps": steps, "wall_seconds": seconds}


def summarise_evaluation(run: Path, episodes: pl.DataFrame, seconds: float) -> dict[str, Any]:
    """The same for fresh episodes of the frozen policies, all of which count; without jitter."""
    head = _head_of_run(run)
    del head["batch"], head["dead_zone"]
    head["seed_ids"] = episodes["seed"].unique(maintain_order=True).to_list()
    steps = int(episodes["length"].sum())
    return {
        **head,
        "seeds": len(head["seed_ids"]),
        "total_steps": steps,
        **_measured(episodes, head["seed_ids"], from_dict(head["constraint"]), None),
        "steps_per_second": steps / seconds,
        "wall_seconds": round(seconds, 2),
        "run_dir": str(run),
    }


def _of_training(
    head: dict[str, Any],
    episodes: pl.DataFrame,
    metrics: pl.DataFrame,
    steps: int,
    seconds: float | None,
) -> dict[str, Any]:
    constraint, seeds, done = (
        from_dict(head["constraint"]),
        head["seed_ids"],
        steps // head["batch"],
    )
    half, iteration = -(-done // 2), pl.col("iteration")
    whole = episodes.filter(pl.col("valid") & (iteration < done))
    rows = whole.filter(iteration >= half)
    tables = metrics.filter(iteration < done), episodes.filter(iteration < done)
    found = {
        str(seed): diagnose(seed_series(*tables, seed), constraint, head["dead_zone"])
        for seed in seeds
    }
    return {
        **{name: value for name, value in head.items() if name not in ("batch", "dead_zone")},
        "total_steps": steps,
        **_measured(rows, seeds, constraint, (half, done), whole),
        "warnings": {seed: sentence for seed, sentence in found.items() if sentence},
        "steps_per_second": steps * len(seeds) / seconds if seconds else None,
    }


def _head_of_run(run: Path) -> dict[str, Any]:
    config = read_config(run)
    try:
        return _head(config)
    except (KeyError, TypeError, ValueError) as error:
        raise CanaryError(
            f"{run / 'config.json'} is damaged ({error}); restore it or start a new run."
        ) from error


def _head(config: dict[str, Any]) -> dict[str, Any]:
    """What was trained on what, from a stored configuration; no JAX is needed to read it."""
    training, constraint = config["training"], from_dict(config["constraint"])
    return {
        "env": str(config["environment"]["name"]),
        "algorithm": str(config["algorithm"]["name"]),
        "preset": str(config["preset"]),
        **_terms(constraint),
        "seeds": len(training["seeds"]),
        "seed_ids": [int(seed) for seed in training["seeds"]],
        "batch": int(training["environments"]) * int(training["rollout_length"]),
        "dead_zone": config["algorithm"]["settings"].get("dead_zone"),
    }


def _terms(constraint: Constraint) -> dict[str, Any]:
    """The constraint, its limit and its epsilon; of several, a list of each."""
    if isinstance(constraint, Joint):
        each = [_terms(part) for part in constraint.parts]
        return {name: [terms[name] for terms in each] for name in each[0]}
    epsilon = None if constraint.kind == "mean" else constraint.share
    return {"constraint": to_dict(constraint), "limit": constraint.limit, "epsilon": epsilon}


def _measured(
    episodes: pl.DataFrame,
    seeds: list[int],
    constraint: Constraint,
    span: tuple[int, int] | None,
    whole: pl.DataFrame | None = None,
) -> dict[str, Any]:
    """All measures. Of several constraints they are of the worst, and `constraints` lists what is
    other for each of them. `whole` are the episodes from the first one on."""
    found = _over_seeds(episodes, seeds, constraint, span)
    if whole is not None:
        parts = [whole.filter(pl.col("seed") == seed) for seed in seeds]
        over_all = [_violation(part, constraint.limit) for part in parts]
        found["violation_probability_whole"] = mean_over_seeds(over_all)
        found["violation_whole_per_seed"] = over_all
    if isinstance(constraint, Joint):
        found["constraints"] = [
            _terms(part)
            | _measured(
                seen_by(part, episodes), seeds, part, span,
                None if whole is None else seen_by(part, whole),
            )
            for part in constraint.parts
        ]  # fmt: skip
    return found


def _over_seeds(
    episodes: pl.DataFrame, seeds: list[int], constraint: Constraint, span: tuple[int, int] | None
) -> dict[str, Any]:
    """All measures per seed and over seeds; `span` gives the iterations [first, last) of the
    episodes where a jitter is wanted."""
    parts = [episodes.filter(pl.col("seed") == seed) for seed in seeds]
    measured = [measurement(constraint, part["cost"].to_numpy()) for part in parts]
    values = [None if one is None else _finite(one.value) for one in measured]
    each: dict[str, list[float | None]] = {
        "violation": [_violation(part, constraint.limit) for part in parts],
        "jitter": [_jitter(part, constraint.limit, span) for part in parts],
        "return": [_finite(part["return"].cast(pl.Float64).mean()) for part in parts],
        "cost": [_finite(_costs(part).mean()) for part in parts],
        "cost_deviation": [_finite(_costs(part).std(ddof=0)) for part in parts],
        "length": [_finite(part["length"].mean()) for part in parts],
        "constraint": values,
    }
    mean = {name: mean_over_seeds(column) for name, column in each.items()}
    error = {name: standard_error(column) for name, column in each.items()}
    return {
        "violation_probability": mean["violation"],
        "violation_standard_error": error["violation"],
        "violation_jitter": mean["jitter"],
        "jitter_standard_error": error["jitter"],
        "return_mean": mean["return"],
        "return_standard_error": error["return"],
        "cost_mean": mean["cost"],
        "cost_deviation": mean["cost_deviation"],
        "length_mean": mean["length"],
        "episodes_per_seed": [len(part) for part in parts],
        **{f"{name}_per_seed": column for name, column in each.items()},
        "constraint_text": constraint.text,
        "constraint_label": constraint.label,
        "constraint_allowed": constraint.allowed,
        "constraint_value": mean["constraint"],
        "constraint_standard_error": error["constraint"],
        "constraint_interval": _interval(measurement(constraint, episodes["cost"].to_numpy())),
        "constraint_interval_per_seed": [_interval(one) for one in measured],
        "safe_fraction": safe_fraction(values, constraint.allowed),
    }


def _costs(part: pl.DataFrame) -> pl.Series:
    """The cost of each episode; none where an episode has several."""
    costs = part["cost"]
    return costs.cast(pl.Float64) if costs.dtype.is_numeric() else pl.Series([], dtype=pl.Float64)


def _violation(part: pl.DataFrame, limit: Any) -> float | None:
    return float(is_violation(part["cost"].to_numpy(), limit).mean()) if len(part) else None


def _jitter(part: pl.DataFrame, limit: Any, span: tuple[int, int] | None) -> float | None:
    if span is None or part.is_empty():
        return None
    violated = is_violation(part["cost"].to_numpy(), limit)
    return violation_jitter(violated, part["iteration"].to_numpy(), *span)


def _interval(measured: Measurement | None) -> list[float] | None:
    if measured is None or not all(map(math.isfinite, measured)):
        return None
    return [measured.lower, measured.upper]


def _finite(value: Any) -> float | None:
    """JSON has no NaN and no infinity."""
    return float(value) if value is not None and math.isfinite(value) else None
