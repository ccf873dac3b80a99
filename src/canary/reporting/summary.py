"""The summary of a run or of an evaluation: the numbers of the paper's table, as JSON data.

A run's summary is a pure function of its directory (config.json, manifest.json and the episodes),
so it can be had at any time, also of a run that was stopped. It describes the second half of the
updates done so far: iterations >= half of them. Only whole episodes count, and a seed without one
has None (null in JSON), never 0.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from canary.constraints import Constraint, from_dict, to_dict
from canary.errors import CanaryError
from canary.numerics.measurement import Measurement, measurement
from canary.reporting.diagnosis import diagnose, seed_series
from canary.reporting.statistics import (
    is_violation,
    mean_over_seeds,
    safe_fraction,
    standard_error,
    violation_jitter,
)
from canary.runs import directory
from canary.runs.manifest import read_manifest


@dataclass(frozen=True, kw_only=True)
class SeedSummary:
    """One seed over its counted episodes; None where there are none."""

    episodes: int
    measured: Measurement | None = None
    """What the constraint limits, with its interval."""
    violation: float | None = None
    jitter: float | None = None
    reward: float | None = None
    cost: float | None = None
    deviation: float | None = None
    length: float | None = None


def summarise_run(run: Path) -> dict[str, Any]:
    """What the training of a run achieved, from its stored files."""
    head, manifest = _head(run), read_manifest(run)
    steps, seconds = manifest["steps"], manifest.get("train_seconds")
    done = steps // head.pop("batch")
    metrics, episodes = (directory.read(run, kind) for kind in ("metrics", "episodes"))
    return {
        **head,
        "status": manifest["status"],
        "total_steps": steps,
        "planned_steps": manifest["total_steps"],
        **_of_training(head, episodes, metrics, done),
        "steps_per_second": steps * head["seeds"] / seconds if seconds else None,
        "wall_seconds": manifest.get("wall_seconds"),
        "run_dir": str(run),
    }


def summarise_tables(
    config: dict[str, Any],
    episodes: pl.DataFrame,
    metrics: pl.DataFrame,
    *,
    steps: int,
    seconds: float | None,
) -> dict[str, Any]:
    """The same of finished seeds that may have been trained apart: `seconds` is the sum of their
    training times."""
    head = _head_of(config)
    done = steps // head.pop("batch")
    return {
        **head,
        "status": "finished",
        "total_steps": steps,
        "planned_steps": steps,
        **_of_training(head, episodes, metrics, done),
        "steps_per_second": steps * head["seeds"] / seconds if seconds else None,
        "wall_seconds": seconds,
    }


def _of_training(
    head: dict[str, Any], episodes: pl.DataFrame, metrics: pl.DataFrame, done: int
) -> dict[str, Any]:
    """Over the second half of `done` updates."""
    constraint, half = from_dict(head["constraint"]), -(-done // 2)
    rows = episodes.filter(
        pl.col("valid") & (pl.col("iteration") >= half) & (pl.col("iteration") < done)
    )
    seeds = [_summarise_seed(rows, seed, constraint, (half, done)) for seed in head["seed_ids"]]
    before = pl.col("iteration") < done
    warnings = _warnings(
        metrics.filter(before), episodes.filter(before), head["seed_ids"], constraint
    )
    return {**_over_seeds(seeds), **_judged(seeds, rows, constraint), "warnings": warnings}


def _warnings(
    metrics: pl.DataFrame, episodes: pl.DataFrame, seeds: list[int], constraint: Constraint
) -> dict[str, str]:
    """By seed, what its last updates look like if something is wrong with them."""
    found = {
        str(seed): diagnose(seed_series(metrics, episodes, seed), constraint) for seed in seeds
    }
    return {seed: sentence for seed, sentence in found.items() if sentence}


def summarise_evaluation(run: Path, episodes: pl.DataFrame, seconds: float) -> dict[str, Any]:
    """The same about fresh episodes of the frozen policies, all of which count; no jitter there."""
    head = _head(run)
    constraint = from_dict(head["constraint"])
    del head["batch"]
    head["seed_ids"] = episodes["seed"].unique(maintain_order=True).to_list()
    head["seeds"] = len(head["seed_ids"])
    seeds = [_summarise_seed(episodes, seed, constraint, None) for seed in head["seed_ids"]]
    steps = int(episodes["length"].sum())
    return {
        **head,
        "total_steps": steps,
        **_over_seeds(seeds),
        **_judged(seeds, episodes, constraint),
        "steps_per_second": steps / seconds,
        "wall_seconds": round(seconds, 2),
        "run_dir": str(run),
    }


def _head(run: Path) -> dict[str, Any]:
    """What was trained on what, from the stored configuration; no JAX is needed to read it."""
    config = directory.read_config(run)
    try:
        return _head_of(config)
    except (KeyError, TypeError, ValueError) as error:
        raise CanaryError(
            f"{run / 'config.json'} is damaged ({error}); restore it or start a new run."
        ) from error


def _head_of(config: dict[str, Any]) -> dict[str, Any]:
    training, constraint = config["training"], from_dict(config["constraint"])
    return {
        "env": str(config["environment"]["name"]),
        "algorithm": str(config["algorithm"]["name"]),
        "preset": str(config["preset"]),
        "constraint": to_dict(constraint),
        "limit": constraint.limit,
        "epsilon": None if constraint.kind == "mean" else constraint.share,
        "seeds": len(training["seeds"]),
        "seed_ids": [int(seed) for seed in training["seeds"]],
        "batch": int(training["environments"]) * int(training["rollout_length"]),
    }


def _summarise_seed(
    episodes: pl.DataFrame, seed: int, constraint: Constraint, training: tuple[int, int] | None
) -> SeedSummary:
    """`training` gives the iterations [first, last) that the episodes come from, if a jitter is
    wanted."""
    rows = episodes.filter(pl.col("seed") == seed)
    if rows.is_empty():
        return SeedSummary(episodes=0)
    violated = is_violation(rows["cost"].to_numpy(), constraint.limit)
    jitter = None
    if training is not None:
        jitter = violation_jitter(violated, rows["iteration"].to_numpy(), *training)
    return SeedSummary(
        episodes=len(rows),
        measured=measurement(constraint, rows["cost"].to_numpy()),
        violation=float(violated.mean()),
        jitter=jitter,
        reward=_finite(rows["return"].cast(pl.Float64).mean()),
        cost=_finite(rows["cost"].cast(pl.Float64).mean()),
        deviation=_finite(rows["cost"].cast(pl.Float64).std(ddof=0)),
        length=_finite(rows["length"].mean()),
    )


def _judged(seeds: list[SeedSummary], rows: pl.DataFrame, constraint: Constraint) -> dict[str, Any]:
    """The constraint itself: what it limits, per seed and over all episodes, and the share of seeds
    that keep it."""
    values = [None if seed.measured is None else _finite(seed.measured.value) for seed in seeds]
    whole = measurement(constraint, rows["cost"].to_numpy())
    return {
        "constraint_text": constraint.text,
        "constraint_label": constraint.label,
        "constraint_allowed": constraint.allowed,
        "constraint_value": mean_over_seeds(values),
        "constraint_standard_error": standard_error(values),
        "constraint_interval": _interval(whole),
        "constraint_per_seed": values,
        "constraint_interval_per_seed": [_interval(seed.measured) for seed in seeds],
        "safe_fraction": safe_fraction(values, constraint.allowed),
    }


def _interval(measured: Measurement | None) -> list[float] | None:
    if measured is None or not all(map(math.isfinite, measured)):
        return None
    return [measured.lower, measured.upper]


def _over_seeds(seeds: list[SeedSummary]) -> dict[str, Any]:
    violation = [seed.violation for seed in seeds]
    jitter = [seed.jitter for seed in seeds]
    reward = [seed.reward for seed in seeds]
    cost = [seed.cost for seed in seeds]
    deviation = [seed.deviation for seed in seeds]
    length = [seed.length for seed in seeds]
    return {
        "violation_probability": mean_over_seeds(violation),
        "violation_standard_error": standard_error(violation),
        "violation_jitter": mean_over_seeds(jitter),
        "jitter_standard_error": standard_error(jitter),
        "return_mean": mean_over_seeds(reward),
        "return_standard_error": standard_error(reward),
        "cost_mean": mean_over_seeds(cost),
        "cost_deviation": mean_over_seeds(deviation),
        "length_mean": mean_over_seeds(length),
        "episodes_per_seed": [seed.episodes for seed in seeds],
        "violation_per_seed": violation,
        "jitter_per_seed": jitter,
        "return_per_seed": reward,
        "cost_per_seed": cost,
        "cost_deviation_per_seed": deviation,
        "length_per_seed": length,
    }


def _finite(value: Any) -> float | None:
    """JSON has no NaN and no infinity."""
    return float(value) if math.isfinite(value) else None
