"""`canary report`: runs and studies on one HTML page.

A short script of our own draws the figures as SVG. It has ten kilobytes and works offline; a
plotting library would put megabytes of script into every page.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from canary.constraints import Chance, Joint, One, from_dict, to_dict
from canary.errors import CanaryError
from canary.numerics.binomial import clopper_pearson_interval
from canary.numerics.tiers import Tier
from canary.reporting.figures import block_of, training_blocks
from canary.reporting.statistics import (
    is_violation,
    mean_over_seeds,
    safe_fraction,
    seen_by,
    standard_error,
)
from canary.reporting.summary import read_evaluation, summarise_run
from canary.runs import directory, files
from canary.runs.manifest import read_config, stored_manifest
from canary.runs.settings import leaves
from canary.runs.tables import read_table
from canary.studies.page import Row, read_page
from canary.studies.table import numbers

Progress = Callable[[int, int, str], None]
Frontier = Callable[[Path | None, dict[str, Any]], dict[str, Any] | None]
"""(run, configuration) -> the exact frontier with the run's policies; None where there is none."""

SHARES = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # of epsilon: where the frontier is computed
BINS, WIDEST = 40, 3.0  # of the cost histogram; its last bar has all costs above WIDEST limits
UPDATE_BLOCKS = 60
AVERAGED = ("backtracks", "accepted", "multiplier", "constraint_level", "risk_bound", "window_violation")  # fmt: skip
SHOWN = ("env", "limit", "epsilon", "seeds", "total_steps", "status", "safe_fraction", "warnings",
         "violation_probability_whole", "violation_jitter", "jitter_standard_error", "return_mean",
         "return_standard_error")  # fmt: skip


def make_report(
    names: Sequence[str],
    runs: Path,
    results: Path,
    out: Path,
    *,
    frontier: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Write the page of these runs and studies. It says what could not be read."""
    files.check_target(out)
    subjects: list[dict[str, Any]] = []
    problems: list[str] = []
    exact = exact_frontier(progress) if frontier else lambda run, config: None
    for name in names:
        try:
            if (results / name / "study.json").exists():
                found, broken = study_subjects(results / name, exact)
                subjects += found
                problems += broken
            else:
                subjects += run_subjects(directory.find_run(name, runs), exact)
        except CanaryError as error:
            problems.append(str(error))
    if not subjects:
        raise CanaryError(" ".join(problems) or "Name a run or a study to report on.")
    is_one = len(names) == 1 and names[0] != "latest"
    title = names[0] if is_one else ", ".join(s["name"] for s in subjects[:3])
    page = render(f"canary: {title}", subjects, problems, f"canary report {' '.join(names)}")
    files.write_atomically(out, page.encode())
    return out


def run_subjects(run: Path, frontier: Frontier) -> list[dict[str, Any]]:
    """A run, finished or not; one with several constraints is shown once for each."""
    config, summary = read_config(run), summarise_run(run)
    constraint = from_dict(config["constraint"])
    if not isinstance(constraint, Joint):
        return [_run_subject(run, run.name, config, summary, constraint, frontier(run, config))]
    return [
        _run_subject(
            run,
            f"{run.name}: {part.label}",
            config | {"constraint": to_dict(part)},
            summary | each,
            part,
            None,
        )
        for part, each in zip(constraint.parts, summary["constraints"], strict=True)
    ]


def _run_subject(
    run: Path,
    name: str,
    config: dict[str, Any],
    summary: dict[str, Any],
    constraint: One,
    exact: dict[str, Any] | None,
) -> dict[str, Any]:
    """A run under one constraint."""
    episodes = seen_by(constraint, read_table(run, "episodes"))
    metrics = _metrics_of(constraint, read_table(run, "metrics"))
    updates = summary["total_steps"] // batch_of(config)
    policies = exact["policies"] if exact else measured_policies(run, summary, updates)
    manifest = stored_manifest(run)
    facts = {
        **manifest.get("versions", {}),
        **{name: manifest.get(name) for name in ("device", "platform", "started", "finished")},
        "command": " ".join(map(str, manifest.get("command", []))),
    }
    done = int(summary["total_steps"]) // batch_of(config)
    whole = episodes.filter(pl.col("valid") & (pl.col("iteration") < done))
    if whole.is_empty():
        raise CanaryError(f"{run.name} has no finished episode yet, so there is nothing to draw.")
    limit, second_half = summary["limit"], whole.filter(pl.col("iteration") >= -(-done // 2))
    drawn = {
        "curves": curves(training_blocks(whole, limit, batch_of(config))),
        "costs": cost_histogram(second_half, limit, summary["epsilon"]),
        "updates": update_series(metrics, whole, limit),
    }
    return subject_of(name, config, summary, drawn, policies, exact) | {
        "versions": [[name, str(value)] for name, value in facts.items() if value is not None]
    }


def _metrics_of(constraint: One, metrics: pl.DataFrame) -> pl.DataFrame:
    """The metrics with those of the constraint under the names that one alone has."""
    if constraint.number is None:
        return metrics
    end = f"_{constraint.number}"
    own = {name: name.removesuffix(end) for name in metrics.columns if name.endswith(end)}
    return metrics.drop(own.values(), strict=False).rename(own)


def study_subjects(results: Path, frontier: Frontier) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a study that have results, and a sentence for each that cannot be read."""
    page = read_page(results)
    if not page.study["rows"]:  # it has points instead of rows
        raise CanaryError(
            f"{results.name} trains no policy, so there are no runs to draw; "
            f"see {results / 'table.md'}."
        )
    if not page.shown and not page.notes:
        raise CanaryError(f"{results} holds no finished seed yet; train it first.")
    return [_row_subject(row, frontier) for row in page.shown], page.notes


def _row_subject(row: Row, frontier: Frontier) -> dict[str, Any]:
    blocks, count = row.blocks(), pl.col("episodes")
    drawn = {
        "curves": curves(
            blocks.filter(count > 0).select(
                "seed", "violations", "steps",
                (pl.col("reward") / count).alias("return"),
                cost=pl.col("cost") / count,
                deviation=(pl.col("cost_squares") / count - (pl.col("cost") / count) ** 2).clip(0).sqrt(),
                violation=pl.col("violations") / count,
                count=count,
            )
        ),
        "costs": None,  # the store keeps no single episode
        "updates": stored_update_series(blocks),
    }  # fmt: skip
    policies = [
        {"seed": seed} | one["final"] for seed, one in row.seeds.items() if one.get("final")
    ]
    is_exact = bool(policies) and not any(policy.get("episodes") for policy in policies)
    exact = frontier(None, row.config) if is_exact else None
    versions = {
        f"{name} {value}"
        for one in row.seeds.values()
        for name, value in (one.get("versions") or {}).items()
    }
    return subject_of(row.name, row.config, _row_summary(row), drawn, policies, exact) | {
        "versions": [["code", row.codes], ["versions", ", ".join(sorted(versions))]]
    }


def _row_summary(row: Row) -> dict[str, Any]:
    """The numbers of a row under the names that they have in the summary of a run."""
    found, measured = numbers(row), row.each("constraint")
    names = {
        "env": "environment", "limit": "limit", "epsilon": "epsilon", "seeds": "seeds", "total_steps": "steps",
        "violation_jitter": "jitter", "jitter_standard_error": "jitter_error", "safe_fraction": "safe",
        "violation_probability_whole": "violation_whole", "return_mean": "reward",
        "return_standard_error": "reward_error",
    }  # fmt: skip
    return {key: found[name] for key, name in names.items()} | {
        "status": "finished",
        "warnings": {
            str(seed): one["warning"] for seed, one in row.seeds.items() if one["warning"]
        },
        "constraint_value": mean_over_seeds(measured),
        "constraint_standard_error": standard_error(measured),
    }


def measured_policies(run: Path, summary: dict[str, Any], updates: int) -> list[dict[str, Any]]:
    """The newest policies on fresh episodes, from the run's certificate or its last evaluation."""
    rows: list[tuple[Any, ...]] = []
    number = summary["constraint"].get("number")
    with suppress(CanaryError, KeyError, TypeError):  # none, or of another version
        stored = _stored_about(files.read_json(run / "certificate.json"), number)
        is_same = all(stored[key] == summary[key] for key in ("limit", "epsilon"))
        if is_same and stored["origin"]["updates"] == updates:
            nominal = [one for one in stored["results"] if not one["changes"]]
            counts = [(one["seed"], one["assessment"], one["evidence"]) for one in nominal]
            rows = [(s, a["violations"], a["episodes"], e["return_mean"]) for s, a, e in counts]
    if not rows and (found := read_evaluation(run, updates)):
        stored = _stored_about(found, number)
        names = ("seed_ids", "violation_per_seed", "episodes_per_seed", "return_per_seed")
        each = zip(*(stored[name] for name in names), strict=True)
        rows = [(seed, round(p * n), n, j) for seed, p, n, j in each if n]
    return [
        {"seed": seed, "violations": k, "episodes": n, "violation": k / n, "return": j}
        for seed, k, n, j in rows
    ]


def _stored_about(stored: dict[str, Any], number: int | None) -> dict[str, Any]:
    """A certificate or an evaluation, as one of several constraints sees it."""
    if number is None:
        return stored
    if "results" not in stored:
        return stored | stored["constraints"][number - 1]
    terms = {name: stored[name][number - 1] for name in ("limit", "epsilon")}
    own = [result for result in stored["results"] if result["promise"] == number]
    return stored | terms | {"results": own}


def final_numbers(policies: list[dict[str, Any]], epsilon: float | None) -> dict[str, Any] | None:
    """The final policies of a run or row. Where they were measured on episodes, P has the exact
    binomial 95% interval of all these episodes."""
    if not policies:
        return None
    rates = [policy["violation"] for policy in policies]
    lower = upper = None
    if all(policy.get("episodes") for policy in policies):
        counts = (sum(policy[name] for policy in policies) for name in ("violations", "episodes"))
        lower, upper = map(float, clopper_pearson_interval(*counts))
    return {
        "violation": mean_over_seeds(rates),
        "lower": lower,
        "upper": upper,
        "largest": max(rates),
        "safe": None if epsilon is None else safe_fraction(rates, epsilon),
        "return": mean_over_seeds([policy["return"] for policy in policies]),
    }


def subject_of(
    name: str,
    config: dict[str, Any],
    summary: dict[str, Any],
    drawn: dict[str, Any],
    policies: list[dict[str, Any]],
    exact: dict[str, Any] | None,
) -> dict[str, Any]:
    """What the page shows of one run or row, as JSON data; `policies` are the final ones."""
    constraint = from_dict(config["constraint"])
    value, error = summary["constraint_value"], summary["constraint_standard_error"]
    measured = {"exact": not any(policy.get("episodes") for policy in policies)}
    frontier = {"lines": {}, "optima": {}} | (exact or {}) | {"policies": policies} | measured
    return {
        "name": name,
        "promise": constraint.text,
        "measured": {"label": constraint.label, "value": value, "error": error},
        **{key: summary.get(key) for key in SHOWN},
        **drawn,
        "dead_zone": config["algorithm"]["settings"].get("dead_zone"),
        "frontier": frontier if exact or policies else None,
        "final": final_numbers(policies, summary["epsilon"]),
        "configuration": [[name, str(value)] for name, value in leaves(config)],
    }


def batch_of(config: dict[str, Any]) -> int:
    return int(config["training"]["environments"]) * int(config["training"]["rollout_length"])


def plain(values: Any, digits: int = 6) -> list[float | None]:
    """Numbers for JSON: rounded, None where one is not finite."""
    return [
        float(f"{value:.{digits}g}") if value is not None and np.isfinite(value) else None
        for value in values
    ]


def curves(blocks: pl.DataFrame) -> dict[str, Any]:
    """Return, cost and violation rate per block of training: of all seeds with a binomial band, and
    of every seed."""
    means = (pl.col(name).mean() for name in ("return", "cost", "deviation"))
    sums = (pl.col(name).sum() for name in ("violations", "count"))
    whole = blocks.group_by("steps").agg(*means, *sums).sort("steps")
    violations, count = whole["violations"].to_numpy(), whole["count"].to_numpy()
    lower, upper = clopper_pearson_interval(violations, count)
    pooled = {name: plain(whole[name]) for name in ("return", "cost", "deviation")}
    bands = {"violation": violations / count, "lower": lower, "upper": upper}
    return {
        "pooled": {"steps": plain(whole["steps"], 9)}
        | pooled
        | {name: plain(column) for name, column in bands.items()},
        "seeds": {
            str(rows["seed"][0]): {
                "steps": plain(rows["steps"], 9),
                **{name: plain(rows[name]) for name in ("return", "cost", "violation")},
            }
            for rows in blocks.partition_by("seed", maintain_order=True)
        },
    }


def cost_histogram(
    episodes: pl.DataFrame, limit: float, epsilon: float | None
) -> dict[str, Any] | None:
    """Histogram of the episode cost with VaR and CVaR at epsilon; None without an episode."""
    cost = episodes["cost"].to_numpy().astype(float)
    cost = cost[np.isfinite(cost)]
    if not cost.size:
        return None
    var = cvar = None
    if epsilon is not None:
        place = min(int(epsilon * len(cost) * (1 + 1e-12)), len(cost) - 1)
        var = float(np.sort(cost)[::-1][place])
        cvar = float(var + np.maximum(cost - var, 0).mean() / epsilon)
    top = max(limit * 1.25, min(float(cost.max()), WIDEST * limit), 1e-9)
    if np.all(cost == np.round(cost)) and top <= 4 * BINS:  # whole numbers: a bar each
        edges = np.arange(-0.5, np.ceil(top) + 1)
    else:
        edges = np.linspace(min(0.0, float(cost.min())), top, BINS + 1)
    counts, _ = np.histogram(np.clip(cost, edges[0], edges[-1]), edges)
    return {
        "edges": plain(edges),
        "counts": counts.tolist(),
        "beyond": int((cost > edges[-1]).sum()),
        "episodes": int(cost.size),
        "mean": float(cost.mean()),
        "var": var,
        "cvar": cvar,
        "violations": int((cost > limit).sum()),
    }


def update_series(
    metrics: pl.DataFrame, episodes: pl.DataFrame, limit: float
) -> dict[str, Any] | None:
    """What the updates did over training, all seeds together; None for methods without."""
    if metrics.is_empty():
        return None
    if {"risk_bound", "window_episodes"} <= set(metrics.columns):
        metrics = with_window_violation(metrics, episodes, limit)
    updates = int(metrics["iteration"].max() or 0) + 1  # type: ignore[arg-type]
    averaged = [name for name in AVERAGED if name in metrics.columns]
    tiers = Tier if "tier" in metrics.columns else ()
    table = metrics.group_by(block=block_of(updates, UPDATE_BLOCKS)).agg(
        pl.col("steps").mean(),
        *(pl.col(name).fill_nan(None).mean() for name in averaged),
        **{f"tier_{tier.value}": (pl.col("tier") == tier.value).mean() for tier in tiers},
    )
    return _update_series(table)


def stored_update_series(blocks: pl.DataFrame) -> dict[str, Any] | None:
    """The same from the blocks of a study's row (`studies.store.thin`)."""
    rate = pl.col("violations").sum() / pl.col("episodes").sum()
    table = blocks.group_by("block").agg(
        pl.col("steps").mean(), pl.col("^update_.*$").mean(), window_violation=rate.fill_nan(None)
    )
    return _update_series(table.rename(lambda name: name.removeprefix("update_")))


def _update_series(table: pl.DataFrame) -> dict[str, Any] | None:
    table = table.sort("block")
    averaged = [name for name in AVERAGED if name in table.columns]
    if "risk_bound" not in averaged:  # nothing to compare the violations with
        averaged = [name for name in averaged if name != "window_violation"]
    shares = {tier.label: f"tier_{tier.value}" for tier in Tier}
    is_tiered = any(name in table.columns for name in shares.values())
    if not averaged and not is_tiered:
        return None
    nothing = [0.0] * len(table)
    return {
        "steps": plain(table["steps"], 9),
        "tiers": {
            label: plain(table[name] if name in table.columns else nothing)
            for label, name in shares.items()
        }
        if is_tiered
        else None,
        **{name: plain(table[name]) for name in averaged},
    }


def with_window_violation(
    metrics: pl.DataFrame, episodes: pl.DataFrame, limit: float
) -> pl.DataFrame:
    """Add the violation rate of the episodes that each update's bound was computed from: the last
    `window_episodes` of the seed."""
    parts = []
    for part in metrics.sort("seed", "iteration").partition_by("seed", maintain_order=True):
        own = episodes.filter(pl.col("seed") == part["seed"][0])
        own = own.sort("iteration", maintain_order=True)
        total = np.concatenate([[0], np.cumsum(is_violation(own["cost"].to_numpy(), limit))])
        last = np.searchsorted(own["iteration"].to_numpy(), part["iteration"].to_numpy(), "right")
        width = np.nan_to_num(part["window_episodes"].to_numpy()).astype(int)
        width = np.minimum(width, last)
        rate = np.where(
            width > 0, (total[last] - total[last - width]) / np.maximum(width, 1), np.nan
        )
        parts.append(part.with_columns(window_violation=pl.Series(rate)))
    return pl.concat(parts)


def exact_frontier(progress: Progress | None) -> Frontier:
    """Best returns under each constraint around epsilon, and the run's policies, where the
    environment is finite."""
    from canary.config.config import config_from_dict
    from canary.exact.mdp import from_environment
    from canary.exact.run import frontier_report

    known: dict[str, dict[str, Any] | None] = {}

    def report(run: Path | None, config: dict[str, Any]) -> dict[str, Any] | None:
        whole = config_from_dict(config)
        from_environment(whole.environment)
        if not isinstance(whole.constraint, Chance):
            return None
        limit, epsilon = whole.constraint.limit, whole.constraint.epsilon
        epsilons = [share * epsilon for share in SHARES if share * epsilon < 0.9]
        runs = [] if run is None else [run]
        problem = whole.environment, limit, epsilon
        found = frontier_report(*problem, epsilons=epsilons, runs=runs, progress=progress)
        lines: dict[str, list[list[float]]] = {}
        for point in found["frontier"]:
            if point["return"] is not None:
                line = lines.setdefault(point["constraint"], [])
                line.append([point["epsilon"], point["return"]])
        seeds = [seed for trained in found["runs"] for seed in trained["seeds"]]
        names = {"seed": "seed", "violation": "violation_probability", "return": "return"}
        return {
            "lines": lines,
            "optima": {name: point["return"] for name, point in found["optima"].items()},
            "policies": [{n: seed[key] for n, key in names.items()} for seed in seeds],
        }

    def compute(run: Path | None, config: dict[str, Any]) -> dict[str, Any] | None:
        problem = [str(run), config["environment"], config["constraint"]]
        key = json.dumps(problem, sort_keys=True)
        if key not in known:  # rows of a study may share it
            try:
                known[key] = report(run, config)
            except CanaryError:  # the environment is not finite, or cannot be made here
                known[key] = None
        return known[key]

    return compute


def render(title: str, subjects: list[dict[str, Any]], problems: list[str], command: str) -> str:
    """One HTML document without any reference to another file or address."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("canary.reporting", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    home = resources.files("canary.reporting")
    return pages.get_template("page.html.jinja").render(
        title=title,
        command=command,
        problems=problems,
        style=home.joinpath("page.css").read_text(),
        script=home.joinpath("page.js").read_text(),
        data=embedded(subjects),
    )


def embedded(value: Any) -> str:
    """JSON for a script element: no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
