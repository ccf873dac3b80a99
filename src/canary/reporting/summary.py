"""The summary of a run or of an evaluation: the numbers of the paper's table, as JSON data.

A run's summary is a pure function of its directory (config.json, manifest.json and the episodes), so it can
be had at any time, also of a run that was stopped. It describes the second half of the updates done so far:
iterations >= half of them. Only whole episodes count, and a seed without one has None (null in JSON), never
0.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from canary.errors import CanaryError
from canary.experiments import storage
from canary.experiments.diagnosis import diagnose, seed_series
from canary.experiments.manifest import read_manifest
from canary.reporting.statistics import (
    is_violation,
    mean_over_seeds,
    safe_fraction,
    standard_error,
    violation_jitter,
)


@dataclass(frozen=True, kw_only=True)
class SeedSummary:
    """One seed over its counted episodes; None where there are none."""

    episodes: int
    violation: float | None = None
    jitter: float | None = None
    reward: float | None = None
    cost: float | None = None
    deviation: float | None = None
    length: float | None = None


def summarise_run(run: Path) -> dict[str, Any]:
    """What the training of a run achieved, from its stored files."""
    head, manifest = _head(run), read_manifest(run)
    batch = head.pop("batch")
    done = manifest["steps"] // batch
    half = -(-done // 2)
    rows = storage.read(run, "episodes").filter(
        pl.col("valid") & (pl.col("iteration") >= half) & (pl.col("iteration") < done)
    )
    seeds = [_summarise_seed(rows, seed, head["limit"], (half, done)) for seed in head["seed_ids"]]
    seconds = manifest.get("train_seconds")
    return {
        **head,
        "status": manifest["status"],
        "total_steps": manifest["steps"],
        "planned_steps": manifest["total_steps"],
        **_over_seeds(seeds, head["epsilon"]),
        "warnings": _warnings(run, done, head),
        "steps_per_second": manifest["steps"] * len(seeds) / seconds if seconds else None,
        "wall_seconds": manifest.get("wall_seconds"),
        "run_dir": str(run),
    }


def _warnings(run: Path, done: int, head: dict[str, Any]) -> dict[str, str]:
    """By seed, what its last updates look like if it is stuck or timid."""
    metrics, episodes = (
        storage.read(run, kind).filter(pl.col("iteration") < done) for kind in ("metrics", "episodes")
    )
    found = {
        str(seed): diagnose(seed_series(metrics, episodes, seed, head["limit"]), head["epsilon"])
        for seed in head["seed_ids"]
    }
    return {seed: sentence for seed, sentence in found.items() if sentence}


def summarise_evaluation(run: Path, episodes: pl.DataFrame, seconds: float) -> dict[str, Any]:
    """The same about fresh episodes of the frozen policies, all of which count; no jitter there."""
    head = _head(run)
    del head["batch"]
    head["seed_ids"] = episodes["seed"].unique(maintain_order=True).to_list()
    head["seeds"] = len(head["seed_ids"])
    seeds = [_summarise_seed(episodes, seed, head["limit"], None) for seed in head["seed_ids"]]
    steps = int(episodes["length"].sum())
    return {
        **head,
        "total_steps": steps,
        **_over_seeds(seeds, head["epsilon"]),
        "steps_per_second": steps / seconds,
        "wall_seconds": round(seconds, 2),
        "run_dir": str(run),
    }


def _head(run: Path) -> dict[str, Any]:
    """What was trained on what, from the stored configuration; no JAX is needed to read it."""
    config = storage.read_json(run / "config.json")
    try:
        training = config["training"]
        return {
            "env": str(config["environment"]["name"]),
            "algorithm": str(config["algorithm"]["name"]),
            "preset": str(config["preset"]),
            "limit": float(config["constraint"]["limit"]),
            "epsilon": float(config["constraint"]["epsilon"]),
            "seeds": len(training["seeds"]),
            "seed_ids": [int(seed) for seed in training["seeds"]],
            "batch": int(training["environments"]) * int(training["rollout_length"]),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise CanaryError(
            f"{run / 'config.json'} is damaged ({error}); restore it or start a new run."
        ) from error


def _summarise_seed(
    episodes: pl.DataFrame, seed: int, limit: float, training: tuple[int, int] | None
) -> SeedSummary:
    """`training` gives the iterations [first, last) that the episodes come from, if a jitter is wanted."""
    rows = episodes.filter(pl.col("seed") == seed)
    if rows.is_empty():
        return SeedSummary(episodes=0)
    violated = is_violation(rows["cost"].to_numpy(), limit)
    jitter = None
    if training is not None:
        jitter = violation_jitter(violated, rows["iteration"].to_numpy(), *training)
    return SeedSummary(
        episodes=len(rows),
        violation=float(violated.mean()),
        jitter=jitter,
        reward=_finite(rows["return"].cast(pl.Float64).mean()),
        cost=_finite(rows["cost"].cast(pl.Float64).mean()),
        deviation=_finite(rows["cost"].cast(pl.Float64).std(ddof=0)),
        length=_finite(rows["length"].mean()),
    )


def _over_seeds(seeds: list[SeedSummary], epsilon: float) -> dict[str, Any]:
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
        "safe_fraction": safe_fraction(violation, epsilon),
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
