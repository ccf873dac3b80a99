"""`canary report`: runs and studies on one HTML page.

A run is thinned as the store of studies does it, so that a run and a row of a study are the same to
the page. A short script of our own draws the figures as SVG; it works offline.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from canary.constraints import Chance, CVaR, One, from_dict, parts_of, threshold, to_dict
from canary.errors import CanaryError
from canary.numerics.statistics import clopper_pearson_interval
from canary.numerics.tiers import Tier
from canary.reporting.blocks import batch_of, rates, thin
from canary.reporting.statistics import mean_over_seeds, seen_by, standard_error
from canary.reporting.summary import measure_seed, read_evaluation
from canary.runs import directory, files
from canary.runs.manifest import codes_of, read_config, read_manifest
from canary.runs.settings import leaves
from canary.runs.tables import read_table
from canary.studies.store import StoredRow, read_study
from canary.studies.table import SIZE, cells
from canary.terminal.formatting import Number, columns

Progress = Callable[[int, int, str], None]
Subject = dict[str, Any]
"""What the page shows of one run or row, as JSON data."""
Frontier = Callable[[Path | None, dict[str, Any]], dict[str, Any] | None]
"""(run, configuration) -> the exact frontier with the run's policies; None where there is none."""

SHARES = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # of epsilon: where the frontier is computed
BINS, WIDEST = 40, 3.0  # of the cost histogram; its last bar has all costs above WIDEST limits
AVERAGED = ("backtracks", "accepted", "multiplier", "constraint_level", "risk_bound")


def make_report(
    names: Sequence[str],
    runs: Path,
    results: Path,
    out: Path,
    *,
    frontier: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Write the page of these runs and studies. It names those that cannot be read."""
    files.check_target(out)
    subjects: list[Subject] = []
    problems: list[str] = []
    known: dict[str, dict[str, Any] | None] = {}

    def exact(run: Path | None, config: dict[str, Any]) -> dict[str, Any] | None:
        key = json.dumps([str(run), config["environment"], config["constraint"]], sort_keys=True)
        if frontier and key not in known:  # rows of a study may share it
            known[key] = None
            with suppress(CanaryError):  # the environment is not finite, or cannot be made here
                known[key] = exact_frontier(run, config, progress)
        return known.get(key)

    for name in names:
        try:
            if (results / name / "study.json").exists():
                study = read_study(results / name)
                subjects += [row_subject(row, exact) for row in study.shown]
                problems += study.notes
                if not study.shown and not study.notes:
                    table = results / name / "table.md"
                    raise CanaryError(f"{name} has no trained seeds to draw; see {table}.")
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


def run_subjects(run: Path, frontier: Frontier) -> list[Subject]:
    """A run, finished or not; one with several constraints is shown once for each."""
    config, manifest = read_config(run), read_manifest(run)
    steps, updates = int(manifest["steps"]), int(manifest["steps"]) // batch_of(config)
    every, metrics = read_table(run, "episodes"), read_table(run, "metrics")
    every = every.filter(pl.col("iteration") < updates)
    if not every["valid"].any():
        raise CanaryError(f"{run.name} has no finished episode yet, so there is nothing to draw.")
    facts = {
        **manifest["versions"],
        **{name: manifest[name] for name in ("device", "platform", "started", "finished")},
        "command": " ".join(map(str, manifest["command"])),
    }
    found = []
    for part in parts_of(from_dict(config["constraint"])):
        own = config | {"constraint": to_dict(part)}
        episodes, updated = seen_by(part, every), _metrics_of(part, metrics)
        exact = frontier(run, config) if part.number is None else None
        final = exact["policies"] if exact else measured_policies(run, part, updates)
        by_seed = {policy["seed"]: policy for policy in final}
        seeds = {
            seed: measure_seed(own, episodes, updated, steps, seed) | {"final": by_seed.get(seed)}
            for seed in config["training"]["seeds"]
        }
        name = run.name if part.number is None else f"{run.name}: {part.label}"
        about = {"row": name, "environment": config["environment"]["name"]}
        row = StoredRow(about, own, steps, seeds, thin(episodes, updated, own, steps))
        half = episodes.filter(pl.col("valid") & (pl.col("iteration") >= -(-updates // 2)))
        found.append(
            subject_of(row, exact, manifest["status"])
            | {
                "costs": cost_histogram(half, part.limit, row.epsilon),
                "versions": [
                    ["code", codes_of(manifest)],
                    *([name, str(value)] for name, value in facts.items() if value),
                ],
            }
        )
    return found


def _metrics_of(constraint: One, metrics: pl.DataFrame) -> pl.DataFrame:
    """The metrics, those of the constraint under the names that a single one has."""
    if constraint.number is None:
        return metrics
    end = f"_{constraint.number}"
    own = {name: name.removesuffix(end) for name in metrics.columns if name.endswith(end)}
    return metrics.drop(own.values(), strict=False).rename(own)


def row_subject(row: StoredRow, frontier: Frontier) -> Subject:
    codes, versions = set[str](), set[str]()
    for one in row.seeds.values():
        codes |= set(str(one.get("code") or "-").split())
        versions |= {f"{name} {value}" for name, value in (one.get("versions") or {}).items()}
    return subject_of(row, frontier(None, row.config) if _is_exact(row) else None, "finished") | {
        "costs": None,  # the store keeps no single episode
        "versions": [["code", " ".join(sorted(codes))], ["versions", ", ".join(sorted(versions))]],
    }


def _is_exact(row: StoredRow) -> bool:
    return bool(row.final("violation")) and not row.final("episodes")


def subject_of(row: StoredRow, exact: dict[str, Any] | None, status: str) -> Subject:
    policies = [{"seed": seed} | one["final"] for seed, one in row.seeds.items() if one["final"]]
    frontier = {"lines": {}, "optima": {}} | (exact or {}) | {"policies": policies}
    frontier["exact"] = _is_exact(row) or not policies
    constraint, measured = row.constraint.text, row.each("constraint")
    if row.constraint.kind != "chance":
        constraint += f": {Number(mean_over_seeds(measured), standard_error(measured))}"
    line = {
        "name": row.name,
        "environment": row.environment,
        "constraint": constraint,
        **cells(row),
        SIZE: f"{len(row.seeds)} × {row.steps:,}",
        "status": status,
    }
    return {
        "name": row.name,
        "line": {name: cell and str(cell) for name, cell in line.items()},
        "limit": row.constraint.limit,
        "epsilon": row.epsilon,
        "warnings": {seed: one["warning"] for seed, one in row.seeds.items() if one["warning"]},
        "curves": curves(row.blocks),
        "updates": update_series(row.blocks),
        "dead_zone": row.config["algorithm"]["settings"].get("dead_zone"),
        "frontier": frontier,
        "configuration": [[name, str(value)] for name, value in leaves(row.config)],
    }


def measured_policies(run: Path, constraint: One, updates: int) -> list[dict[str, Any]]:
    """The newest policies on the fresh episodes of the last evaluation."""
    if (found := read_evaluation(run, updates)) is None:
        return []
    if constraint.number is not None:
        found |= found["constraints"][constraint.number - 1]
    names = ("violation", "episodes", "return")
    rows = zip(found["seed_ids"], *(found[f"{name}_per_seed"] for name in names), strict=True)
    return [
        {"seed": seed, "violations": round(p * n), "episodes": n, "violation": p, "return": reward}
        for seed, p, n, reward in rows
    ]


def plain(values: Any, digits: int = 6) -> list[float | None]:
    """Numbers for JSON: rounded, None where one is not finite."""
    return [
        float(f"{value:.{digits}g}") if value is not None and np.isfinite(value) else None
        for value in values
    ]


def curves(blocks: pl.DataFrame) -> dict[str, Any]:
    """Return, cost and violation rate per block of training: of all seeds with a binomial band, and
    of every seed."""
    rated = rates(blocks)
    means = (pl.col(name).mean() for name in ("return", "cost", "deviation"))
    sums = (pl.col(name).sum() for name in ("violations", "episodes"))
    whole = rated.group_by("steps").agg(*means, *sums).sort("steps")
    violations, episodes = whole["violations"].to_numpy(), whole["episodes"].to_numpy()
    lower, upper = clopper_pearson_interval(violations, episodes)
    pooled = whole.with_columns(violation=violations / episodes, lower=lower, upper=upper)

    def series(rows: pl.DataFrame, *names: str) -> dict[str, list[float | None]]:
        return {"steps": plain(rows["steps"], 9)} | {name: plain(rows[name]) for name in names}

    names = ("return", "cost", "violation")
    return {
        "pooled": series(pooled, *names, "deviation", "lower", "upper"),
        "seeds": {
            str(rows["seed"][0]): series(rows, *names)
            for rows in rated.partition_by("seed", maintain_order=True)
        },
    }


def cost_histogram(
    episodes: pl.DataFrame, limit: float, epsilon: float | None
) -> dict[str, Any] | None:
    """Histogram of the episode cost with VaR and CVaR at epsilon; None without an episode."""
    cost = episodes["cost"].to_numpy().astype(float)
    if not cost.size:
        return None
    var = cvar = None
    if epsilon is not None:
        var, cvar = threshold(cost, epsilon), CVaR(limit, epsilon).measure(cost)
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


def update_series(blocks: pl.DataFrame) -> dict[str, Any] | None:
    """What the updates did per block of training, all seeds together; None if the method reports
    nothing of it."""
    rate = pl.col("violations").sum() / pl.col("episodes").sum()
    table = blocks.group_by("block").agg(
        pl.col("steps").mean(), pl.col("^update_.*$").mean(), violation=rate.fill_nan(None)
    )
    table = table.sort("block").rename(lambda name: name.removeprefix("update_"))
    series = {name: plain(table[name]) for name in AVERAGED if name in table.columns}
    tiers = {tier.label: f"tier_{tier.value}" for tier in Tier}
    shares = {label: plain(table[name]) for label, name in tiers.items() if name in table.columns}
    if not series and not shares:
        return None
    if "risk_bound" in series:
        series["violation"] = plain(table["violation"])
    return {"steps": plain(table["steps"], 9), "tiers": shares or None, **series}


def exact_frontier(
    run: Path | None, config: dict[str, Any], progress: Progress | None = None
) -> dict[str, Any] | None:
    """Best returns under each constraint around epsilon, and the run's policies, where the
    environment is finite and the constraint is on a probability."""
    from canary.config.config import config_from_dict
    from canary.exact.run import frontier_report

    whole = config_from_dict(config)
    if not isinstance(whole.constraint, Chance):
        return None
    limit, epsilon = whole.constraint.limit, whole.constraint.epsilon
    epsilons = [share * epsilon for share in SHARES if share * epsilon < 0.9]
    runs = [] if run is None else [run]
    found = frontier_report(
        whole.environment, limit, epsilon, epsilons=epsilons, runs=runs, progress=progress
    )
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


def render(title: str, subjects: list[Subject], problems: list[str], command: str) -> str:
    """One HTML document without any reference to another file or address."""
    from jinja2 import Environment, StrictUndefined

    home = resources.files("canary.reporting")
    pages = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = pages.from_string(home.joinpath("page.html.jinja").read_text())
    lines = [subject["line"] for subject in subjects]
    data = json.dumps(subjects, allow_nan=False, separators=(",", ":"))
    for character in "<>&":  # no text in it can end the script element
        data = data.replace(character, f"\\u{ord(character):04x}")
    return template.render(
        title=title,
        command=command,
        problems=problems,
        columns=columns(lines),
        lines=lines,
        style=home.joinpath("page.css").read_text(),
        script=home.joinpath("page.js").read_text(),
        data=data,
    )
