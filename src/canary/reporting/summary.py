"""The summary of a run or of an evaluation: the numbers of the paper's table, as JSON data.

A run's summary is a function of its directory, so an interrupted run has one too. It describes the
second half of the updates done so far, whole episodes only. A seed without an episode has None
(null in JSON), never 0.
"""

import math
from pathlib import Path
from typing import Any

import polars as pl

from canary.constraints import Constraint, Joint, One, from_dict, one_cost, to_dict
from canary.errors import CanaryError
from canary.numerics.statistics import measurement
from canary.reporting.blocks import batch_of
from canary.reporting.diagnosis import diagnose, seed_series
from canary.reporting.statistics import (
    collapse_time,
    is_violation,
    mean_over_seeds,
    running_rate,
    safe_fraction,
    seen_by,
    standard_error,
    violation_jitter,
)
from canary.runs.files import read_sealed
from canary.runs.manifest import read_config, read_manifest
from canary.runs.tables import read_table

EVALUATION = "evaluation.json"  # the last evaluation of a run's newest policies
YARDSTICK = "yardstick.json"  # constant and random actions, where a seed is stuck or timid
MEASURES = ("violation", "jitter", "return", "cost", "cost_deviation", "length", "constraint")
RATE_EPISODES = 50  # episodes in the running violation rate whose collapse is timed


def summarise_run(run: Path) -> dict[str, Any]:
    """The training of a run, from its stored files."""
    config, manifest = read_config(run), read_manifest(run)
    metrics, episodes = (read_table(run, kind) for kind in ("metrics", "episodes"))
    constraint, seeds, steps = (
        from_dict(config["constraint"]),
        config["training"]["seeds"],
        manifest["steps"],
    )
    done = steps // batch_of(config)
    second, whole = _halves(episodes, done)
    found = {str(seed): _warning(config, metrics, episodes, done, seed) for seed in seeds}
    seconds = manifest.get("train_seconds")
    return {
        **_head(config, seeds),
        "total_steps": steps,
        **_measured(second, seeds, constraint, (-(-done // 2), done), whole),
        "warnings": {seed: sentence for seed, sentence in found.items() if sentence},
        "steps_per_second": steps * len(seeds) / seconds if seconds else None,
        "status": manifest["status"],
        "planned_steps": manifest["total_steps"],
        "wall_seconds": manifest.get("wall_seconds"),
        "start": manifest.get("start"),
        "final_check": read_evaluation(run, done),
        "yardstick": (_read(run / YARDSTICK) or {}).get("sentence"),
        "run_dir": str(run),
    }


def _halves(episodes: pl.DataFrame, done: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Whole episodes of the second half of the updates done, and of all of them."""
    whole = episodes.filter(pl.col("valid") & (pl.col("iteration") < done))
    return whole.filter(pl.col("iteration") >= -(-done // 2)), whole


def _warning(
    config: dict[str, Any], metrics: pl.DataFrame, episodes: pl.DataFrame, done: int, seed: int
) -> str | None:
    metrics, episodes = (table.filter(pl.col("iteration") < done) for table in (metrics, episodes))
    dead_zone = config["algorithm"]["settings"].get("dead_zone")
    series = seed_series(metrics, episodes, seed)
    return diagnose(series, from_dict(config["constraint"]), dead_zone)


def read_evaluation(run: Path, updates: int) -> dict[str, Any] | None:
    """The last evaluation of the policies after so many updates; None if there is none."""
    stored = _read(run / EVALUATION)
    return stored if stored is not None and stored.get("updates") == updates else None


def _read(path: Path) -> dict[str, Any] | None:
    """A sealed file; None if it is missing or damaged."""
    try:
        return read_sealed(path)
    except CanaryError:
        return None


def summarise_evaluation(run: Path, episodes: pl.DataFrame, seconds: float) -> dict[str, Any]:
    """The same for fresh episodes of frozen policies, all of which count; without jitter."""
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


def _head(config: dict[str, Any], seeds: list[int]) -> dict[str, Any]:
    """What was trained on what, from a stored configuration, without JAX."""
    return {
        "env": str(config["environment"]["name"]),
        "algorithm": str(config["algorithm"]["name"]),
        "preset": str(config["preset"]),
        **_terms(from_dict(config["constraint"])),
        "seeds": len(seeds),
        "seed_ids": [int(seed) for seed in seeds],
    }


def _terms(constraint: Constraint) -> dict[str, Any]:
    """The constraint, its limit and its epsilon; lists if there are several."""
    if isinstance(constraint, Joint):
        each = [_terms(part) for part in constraint.parts]
        return {name: [terms[name] for terms in each] for name in each[0]}
    epsilon = None if constraint.kind == "mean" else constraint.share
    return {"constraint": to_dict(constraint), "limit": constraint.limit, "epsilon": epsilon}


def _measured(
    episodes: pl.DataFrame,
    seeds: list[int],
    constraint: Constraint,
    span: tuple[int, int] | None = None,
    whole: pl.DataFrame | None = None,
) -> dict[str, Any]:
    """All measures, per seed and over seeds. In training `span` is the range of iterations of these
    episodes, and `whole` has the episodes from the first on.

    With several constraints the measures are those of the worst, and `constraints` lists the
    measures of each.
    """
    parts = [episodes.filter(pl.col("seed") == seed) for seed in seeds]
    of_seeds = [_of_seed(part, constraint, span) for part in parts]
    each = {name: [one.get(name) for one in of_seeds] for name in MEASURES}
    mean = {name: mean_over_seeds(column) for name, column in each.items()}
    error = {name: standard_error(column) for name, column in each.items()}
    found = {
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
        "constraint_interval": _interval(episodes, constraint),
        "constraint_interval_per_seed": [_interval(part, constraint) for part in parts],
        "safe_fraction": safe_fraction(each["constraint"], constraint.allowed),
    }
    if whole is not None:
        of_whole = (whole.filter(pl.col("seed") == seed) for seed in seeds)
        rates = [_of_seed(part, constraint).get("violation") for part in of_whole]
        found["violation_probability_whole"] = mean_over_seeds(rates)
        found["violation_whole_per_seed"] = rates
    if isinstance(constraint, Joint):
        found["constraints"] = []
        for part in constraint.parts:
            own = seen_by(part, episodes), None if whole is None else seen_by(part, whole)
            found["constraints"].append(_terms(part) | _measured(own[0], seeds, part, span, own[1]))
    return found


def _of_seed(
    episodes: pl.DataFrame, constraint: Constraint, span: tuple[int, int] | None = None
) -> dict[str, float]:
    """The measures that are known of a seed; an episode with several costs has no `cost`."""
    if episodes.is_empty():
        return {}
    costs, measures = episodes["cost"], {}
    violated = is_violation(costs.to_numpy(), constraint.limit)
    if span is not None:
        jitter = violation_jitter(violated, episodes["iteration"].to_numpy(), *span)
        measures["jitter"] = jitter
    if costs.dtype.is_numeric():
        one = costs.cast(pl.Float64)
        measures |= {"cost": one.mean(), "cost_deviation": one.std(ddof=0)}
    measures |= {
        "violation": violated.mean(),
        "return": episodes["return"].cast(pl.Float64).mean(),
        "length": episodes["length"].mean(),
        "constraint": constraint.measure(costs.to_numpy().astype(float)),
    }
    # JSON has no NaN and no infinity
    known = {name: value for name, value in measures.items() if value is not None}
    return {name: float(value) for name, value in known.items() if math.isfinite(value)}


def _interval(episodes: pl.DataFrame, constraint: Constraint) -> list[float] | None:
    """The 95% interval of what the constraint limits."""
    measured = measurement(constraint, episodes["cost"].to_numpy())
    if measured is None or not all(map(math.isfinite, measured)):
        return None
    return [measured.lower, measured.upper]


def measure_seed(
    config: dict[str, Any], episodes: pl.DataFrame, metrics: pl.DataFrame, steps: int, seed: int
) -> dict[str, Any]:
    """What the store keeps of a seed with one cost: its measures over the second half of training,
    and its violations over all of it."""
    constraint = one_cost(from_dict(config["constraint"]), "A study")
    batch, done = batch_of(config), steps // batch_of(config)
    episodes, metrics = (table.filter(pl.col("seed") == seed) for table in (episodes, metrics))
    second, whole = _halves(episodes, done)
    found = _of_seed(second, constraint, (-(-done // 2), done))
    violated = is_violation(whole["cost"].to_numpy(), constraint.limit)
    updates, rate = running_rate(violated, whole["iteration"].to_numpy(), RATE_EPISODES)
    return {
        "episodes": len(second),
        **{name: found.get(name) for name in MEASURES},
        "episodes_whole": len(whole),
        "violation_whole": _of_seed(whole, constraint).get("violation"),
        "collapse_steps": collapse_time((updates + 1.0) * batch, rate),
        "cantelli": _cantelli(metrics, constraint, done),
        "warning": _warning(config, metrics, episodes, done, seed),
    }


def _cantelli(metrics: pl.DataFrame, constraint: One, updates: int) -> float | None:
    """Mean of (1/epsilon - 1) (sigma/l)^2 - (1 - mu/l)^2 over the second half of the updates; None
    where the method does not report the moments of the cost."""
    if constraint.kind != "chance" or not {"cost_mean", "cost_deviation"} <= set(metrics.columns):
        return None
    in_half = pl.col("iteration").is_between(-(-updates // 2), updates, closed="left")
    half = metrics.filter(in_half & pl.col("cost_mean").is_not_nan())
    mean, deviation = (
        half[name].to_numpy() / constraint.limit for name in ("cost_mean", "cost_deviation")
    )
    value = (1 / constraint.share - 1) * deviation**2 - (1 - mean) ** 2
    return float(value.mean()) if len(half) else None
