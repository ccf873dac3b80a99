"""The table and the figure of a study, from the files that it keeps of every variant.

Columns as in the paper's table (tab:safety), over the second half of training: violation probability P, its jitter, the share
of seeds with P <= epsilon, the return J; then, where the environment is finite, the same of the final policies exactly.
"""

import json
from pathlib import Path
from typing import Any

import polars as pl

from canary.experiments.studies import Study, Variant
from canary.reporting.statistics import paired_difference

COLUMNS = (
    "variant",
    "P",
    "jitter",
    "safe",
    "J",
    "lowest J",
    "J against the first",
    "P against the first",
    "exact P (largest)",
    "exact J",
    "paper: P, jitter, safe, J",
    "",
)


def study_rows(study: Study, results: Path) -> list[dict[str, Any]]:
    """One row per variant that has results, numbers as numbers."""
    rows: list[dict[str, Any]] = []
    first: dict[str, Any] | None = None
    for variant in study.variants:
        folder = results / variant.name
        if (folder / "summary.json").exists():
            summary = json.loads((folder / "summary.json").read_text())
            path = folder / "exact.json"
            row = _row(variant, summary, json.loads(path.read_text()) if path.exists() else None)
            rows.append(row | _against(summary, first))
            first = first or summary
    return rows


def _against(summary: dict[str, Any], first: dict[str, Any] | None) -> dict[str, float | None]:
    """How a variant differs from the first on the same seeds, with 95% intervals."""
    result: dict[str, float | None] = {}
    for name, key in (("reward", "return_per_seed"), ("violation", "violation_per_seed")):
        pair = None if first is None else paired_difference(summary[key], first[key])
        result[f"{name}_difference"], result[f"{name}_difference_error"] = pair or (None, None)
    return result


def _row(variant: Variant, summary: dict[str, Any], exact: dict[str, Any] | None) -> dict[str, Any]:
    returns = [value for value in summary["return_per_seed"] if value is not None]
    paper = variant.paper
    return {
        "variant": variant.name,
        "about": variant.about,
        "algorithm": summary["algorithm"],
        "preset": summary["preset"],
        "overrides": " ".join(variant.overrides),
        "limit": summary["limit"],
        "epsilon": summary["epsilon"],
        "seeds": summary["seeds"],
        "steps": summary["total_steps"],
        "violation": summary["violation_probability"],
        "violation_error": summary["violation_standard_error"],
        "jitter": summary["violation_jitter"],
        "safe": summary["safe_fraction"],
        "reward": summary["return_mean"],
        "reward_error": summary["return_standard_error"],
        "lowest_reward": min(returns) if returns else None,
        "largest_violation": max(
            (value for value in summary["violation_per_seed"] if value is not None), default=None
        ),
        "exact_violation": None if exact is None else sum(exact["violation_per_seed"]) / summary["seeds"],
        "exact_largest_violation": None if exact is None else max(exact["violation_per_seed"]),
        "exact_safe": None
        if exact is None
        else sum(value <= summary["epsilon"] for value in exact["violation_per_seed"]) / summary["seeds"],
        "exact_reward": None if exact is None else sum(exact["return_per_seed"]) / summary["seeds"],
        "steps_per_second": summary["steps_per_second"],
        "paper_violation": paper.violation if paper else None,
        "paper_jitter": paper.jitter if paper else None,
        "paper_safe": paper.safe if paper else None,
        "paper_reward": paper.reward if paper else None,
    }


def markdown(study: Study, rows: list[dict[str, Any]], name: str) -> str:
    """The table for people, with what it needs to be repeated."""
    seeds = f"{study.seeds[0]}-{study.seeds[-1]}"
    lines = [
        f"# {study.title}",
        "",
        f"`canary reproduce {name}`: seeds {seeds}, {study.total_steps:,} steps each. P, jitter, safe and J are of the second",
        "half of training (± standard error over seeds), differences to the first row seed by seed (± 95% interval); the",
        "exact columns are of the final policies, by dynamic programming.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def show(name: str, form: str) -> str:
        return "-" if row[name] is None else format(row[name], form)

    paper = ("violation", ".3f"), ("jitter", ".4f"), ("safe", ".0%"), ("reward", ".2f")
    return (
        row["variant"],
        f"{show('violation', '.4f')} ± {show('violation_error', '.4f')}",
        show("jitter", ".4f"),
        show("safe", ".0%"),
        f"{show('reward', '.3f')} ± {show('reward_error', '.3f')}",
        show("lowest_reward", ".3f"),
        *(
            f"{show(f'{name}_difference', f'+.{digits}f')} ± {show(f'{name}_difference_error', f'.{digits}f')}"
            if row[f"{name}_difference"] is not None
            else "-"
            for name, digits in (("reward", 3), ("violation", 4))
        ),
        f"{show('exact_violation', '.4f')} ({show('exact_largest_violation', '.4f')})",
        show("exact_reward", ".3f"),
        ", ".join(show(f"paper_{name}", form) for name, form in paper)
        if row["paper_violation"] is not None
        else "-",
        row["about"],
    )


def save_study(study: Study, results: Path) -> dict[str, Path]:
    """Write table.md, table.csv and study.png; returns their paths by label."""
    rows = study_rows(study, results)
    paths = {"table": results / "table.md", "data": results / "table.csv", "figure": results / "study.png"}
    paths["table"].write_text(markdown(study, rows, results.name))
    pl.DataFrame(rows).write_csv(paths["data"])
    _figure(rows, study, results, paths["figure"])
    return paths


def _figure(rows: list[dict[str, Any]], study: Study, results: Path, path: Path) -> None:
    """Every seed of every variant as a point: violation probability against return."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from canary.reporting.figures import GREY, RED, STYLE

    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
        colours = plt.get_cmap("tab20" if len(rows) > 10 else "tab10")
        markers = "osD^vP*XphH"
        for index, row in enumerate(rows):
            summary = json.loads((results / row["variant"] / "summary.json").read_text())
            violation = [max(value, 3e-4) for value in summary["violation_per_seed"]]
            axes.scatter(
                violation, summary["return_per_seed"], s=26, alpha=0.8, linewidths=0,
                color=colours(index), marker=markers[index % len(markers)], label=row["variant"],
            )  # fmt: skip
        for epsilon in {row["epsilon"] for row in rows}:
            axes.axvline(epsilon, color=RED, linewidth=1, linestyle="--")
            axes.annotate(
                f" epsilon {epsilon:g}",
                (epsilon, 0.02),
                xycoords=("data", "axes fraction"),
                color=RED,
                fontsize=8,
                rotation=90,  # several thresholds may stand close together
                ha="right",
            )
        axes.set(
            xscale="log", xlabel="violation probability, second half of training (3e-4 and below at 3e-4)"
        )
        axes.set_ylabel("return")
        axes.set_title(study.title)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8, labelcolor=GREY)
        figure.savefig(path)
        plt.close(figure)
