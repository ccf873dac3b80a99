"""`canary report`: runs and studies on one HTML page that works offline.

A run and a row of a study have the same form (`reporting.results`). The script page.js draws the
figures as SVG.
"""

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from canary.constraints import CVaR, One, Tier, threshold
from canary.errors import CanaryError
from canary.reporting.results import Results, batch_of, of_run
from canary.reporting.statistics import over_seeds
from canary.reporting.summary import read_evaluation
from canary.runs import directory, files
from canary.runs.settings import leaves
from canary.studies.store import read_study
from canary.studies.table import SIZE, cells
from canary.terminal.formatting import Number, columns

Data = dict[str, Any]
"""JSON data for the page."""

BINS, WIDEST = 40, 3.0  # of the cost histogram; its last bar counts all costs above WIDEST limits
FACTS = ("device", "platform", "started", "command")


def make_report(names: Sequence[str], runs: Path, results: Path, out: Path) -> Path:
    """Write the page of these runs and studies. The page names those that cannot be read."""
    files.check_target(out)
    found: list[Results] = []
    problems: list[str] = []
    for name in names:
        try:
            if (results / name / "study.json").exists():
                rows = read_study(results / name).shown
                if not rows:
                    raise CanaryError(f"The study {name} has no trained seeds to draw.")
                found += rows
            else:
                found += results_of(directory.find_run(name, runs))
        except CanaryError as error:
            problems.append(str(error))
    if not found:
        raise CanaryError(" ".join(problems) or "Name a run or a study to report on.")
    is_one = len(names) == 1 and names[0] != "latest"
    title = names[0] if is_one else ", ".join(one.name for one in found[:3])
    command = f"canary report {' '.join(names)}"
    page = render(f"canary: {title}", list(map(subject_of, found)), problems, command)
    files.write_atomically(out, page.encode())
    return out


def results_of(run: Path) -> list[Results]:
    """The results of a run with its newest policies on the episodes of the last evaluation."""
    found = of_run(run)
    for one in found:
        if not one.blocks["episodes"].sum():
            raise CanaryError(
                f"{run.name} has no finished episode yet, so there is nothing to draw."
            )
        evaluation = read_evaluation(run, one.steps // batch_of(one.config))
        if evaluation is not None:
            for seed, policy in final_policies(evaluation, one.constraint).items():
                one.seeds[seed]["final"] = policy
    return found


def final_policies(evaluation: Data, constraint: One) -> dict[int, Data]:
    """The evaluation of each seed's policy under a constraint, in the form of a stored row."""
    if constraint.number is not None:
        evaluation = evaluation | evaluation["constraints"][constraint.number - 1]
    names = ("violation", "episodes", "return")
    columns = (evaluation[f"{name}_per_seed"] for name in names)
    return {
        seed: {"violations": round(p * n), "episodes": n, "violation": p, "return": reward}
        for seed, p, n, reward in zip(evaluation["seed_ids"], *columns, strict=True)
    }


def subject_of(results: Results) -> Data:
    """The data of one run or row."""
    seeds, constraint = results.seeds, results.constraint
    text = constraint.text
    if constraint.kind != "chance":
        mean, error, _ = over_seeds(results.each("constraint"))
        text += f": {Number(mean, error)}"
    line = {
        "name": results.name,
        "environment": results.environment,
        "constraint": text,
        **cells(results),
        SIZE: f"{len(seeds)} × {results.steps:,}",
        "status": results.about.get("status", "finished"),
    }
    codes = sorted({code for one in seeds.values() for code in one["code"].split()})
    versions = {
        f"{name} {version}" for one in seeds.values() for name, version in one["versions"].items()
    }
    facts = {"code": " ".join(codes), "versions": ", ".join(sorted(versions))}
    facts |= {name: results.about.get(name) for name in FACTS}
    return {
        "name": results.name,
        "line": {name: cell and str(cell) for name, cell in line.items()},
        "limit": constraint.limit,
        "epsilon": results.epsilon,
        "kind": constraint.kind,
        "label": constraint.label,
        "allowed": constraint.allowed,
        "warnings": {seed: one["warning"] for seed, one in seeds.items() if one["warning"]},
        "pooled": _columns(results.pooled()),
        "seeds": {
            str(rows["seed"][0]): _columns(rows["steps", "return", "cost", "measured"])
            for rows in results.rates.partition_by("seed", maintain_order=True)
        },
        "updates": update_series(results.blocks),
        "costs": cost_histogram(results),
        "deadZone": results.config["algorithm"]["settings"].get("dead_zone"),
        "final": list(zip(results.final("violation"), results.final("return"), strict=True)),
        "isExact": not results.final("episodes"),
        "configuration": [[name, str(value)] for name, value in leaves(results.config)],
        "facts": [[name, str(value)] for name, value in facts.items() if value],
    }


def _columns(table: pl.DataFrame) -> dict[str, list[float | None]]:
    return {name: plain(table[name]) for name in table.columns}


def plain(values: Any) -> list[float | None]:
    """Numbers for JSON: rounded, and None if not finite."""
    return [
        float(f"{value:.7g}") if value is not None and np.isfinite(value) else None
        for value in values
    ]


def cost_histogram(results: Results) -> Data | None:
    """Histogram of the episode cost with VaR and CVaR at epsilon; None without an episode."""
    cost, limit, epsilon = results.costs, results.constraint.limit, results.epsilon
    if cost is None or not cost.size:
        return None
    var = cvar = None
    if epsilon is not None:
        var, cvar = threshold(cost, epsilon), CVaR(limit, epsilon).measure(cost)
    top = max(limit * 1.25, min(float(cost.max()), WIDEST * limit), 1e-9)
    if np.all(cost == np.round(cost)) and top <= 4 * BINS:  # whole numbers: one bar each
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


def update_series(blocks: pl.DataFrame) -> Data:
    """Updates per block of training, over all seeds: the price of the constraint and its level, or
    the shares of the tiers."""
    names = {f"update_{name}": name for name in ("multiplier", "constraint_level")}
    names |= {f"update_tier_{tier.value}": tier.label for tier in Tier}
    names = {name: label for name, label in names.items() if name in blocks.columns}
    means = (pl.col(name).mean().alias(label) for name, label in names.items())
    return _columns(blocks.group_by("block").agg(pl.col("steps").mean(), *means).sort("block"))


def render(title: str, subjects: list[Data], problems: list[str], command: str) -> str:
    """One HTML document that refers to no other file or address."""
    from jinja2 import Environment, StrictUndefined

    home = resources.files("canary.reporting")
    pages = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = pages.from_string(home.joinpath("page.html.jinja").read_text())
    lines = [subject["line"] for subject in subjects]
    data = json.dumps(subjects, allow_nan=False, separators=(",", ":"))
    for character in "<>&":  # so that no text can end the script element
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
