"""The paper's table (tab:safety): every method on every environment beside the published row.

A number of ours is marked * where it lies outside the published 95% interval: mean ± 1.96 standard
errors, widened by half of the last digit that the paper prints; for the share of safe seeds the
exact binomial interval of 30 seeds.
"""

from pathlib import Path
from typing import Any

from canary.numerics.binomial import clopper_pearson_interval
from canary.reporting.aggregates import margin_per_jitter
from canary.studies.page import paths_of, shown, write_data, write_page
from canary.studies.rows import Row
from canary.studies.table import numbers

PAPER_SEEDS = 30
DIGITS = {"violation": 0.0005, "jitter": 0.00005}  # half of the last printed digit
COLUMNS = (
    "environment", "method", "P", "jitter × 10³", "safe", "J", "(ε−P)/jitter", "final P (largest)", "final safe",
    "final J", "seeds × steps", "code",
)  # fmt: skip


def save(
    results: Path, study: dict[str, Any], rows: list[Row], problems: list[str]
) -> dict[str, Path]:
    """Write table.md and table.csv; returns their paths by label."""
    data = [numbers(row) | outside(numbers(row), row.about["paper"]) for row in rows]
    write_data(results, data)
    cells = []
    for row, values in zip(rows, data, strict=True):
        cells.append(_cells(values))
        if row.about["paper"]:
            published = _published(row.about["paper"], row.summary["epsilon"])
            cells.append(("", "*published*", *published, "", "", "", "", ""))
    write_page(
        results,
        study,
        "Second half of training, ± standard error over seeds; the published rows are of\n"
        f"{PAPER_SEEDS} seeds. A star marks a number of ours outside the published 95% interval. "
        "Final columns are of the\n"
        "final policies: by dynamic programming on IcyLake, on 500 fresh episodes per seed "
        "elsewhere. Canary has two rows: as\n"
        "published (preset `paper`) and as it is here (`fast`).",
        COLUMNS,
        cells,
        problems,
    )
    return paths_of(results)


def outside(row: dict[str, Any], paper: dict[str, Any] | None) -> dict[str, bool | None]:
    """For P, jitter, safe and J: whether ours lies outside the published interval; None where
    either is not known."""
    result: dict[str, bool | None] = {}
    for name in ("violation", "jitter", "reward", "safe"):
        ours = row[name]
        if paper is None or ours is None or (name != "safe" and paper.get(f"{name}_error") is None):
            result[f"{name}_outside"] = None
            continue
        if name == "safe":
            lower, upper = clopper_pearson_interval(round(paper["safe"] * PAPER_SEEDS), PAPER_SEEDS)
        else:
            digit = DIGITS.get(name, 0.005 * max(1.0, abs(paper["reward"])))
            half = 1.96 * paper[f"{name}_error"] + digit
            lower, upper = paper[name] - half, paper[name] + half
        result[f"{name}_outside"] = not bool(lower <= ours <= upper)
    return result


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def show(name: str, form: str, scale: float = 1.0) -> str:
        return shown(None if row[name] is None else row[name] * scale, form)

    def star(name: str) -> str:
        return "*" if row[f"{name}_outside"] else ""

    digits = ".3f" if abs(row["reward"] or 0) < 10 else ".1f"
    return (
        row["environment"],
        f"{row['algorithm']} (`{row['preset']}`)",
        f"{show('violation', '.4f')} ± {show('violation_error', '.4f')}{star('violation')}",
        f"{show('jitter', '.1f', 1e3)} ± {show('jitter_error', '.1f', 1e3)}{star('jitter')}",
        f"{show('safe', '.0%')}{star('safe')}",
        f"{show('reward', digits)} ± {show('reward_error', digits)}{star('reward')}",
        show("margin_per_jitter", ".1f"),
        f"{show('final_violation', '.4f')} ({show('final_largest_violation', '.4f')})",
        show("final_safe", ".0%"),
        show("final_reward", digits),
        f"{row['seeds']} × {row['steps']:,}",
        row["code"],
    )


def _published(paper: dict[str, Any], epsilon: float) -> tuple[str, ...]:
    margin = margin_per_jitter(epsilon, paper["violation"], paper["jitter"])
    return (
        f"{paper['violation']:.3f} ± {paper['violation_error']:.3f}",
        f"{paper['jitter'] * 1e3:.1f} ± {paper['jitter_error'] * 1e3:.1f}",
        f"{paper['safe']:.0%}",
        f"{paper['reward']:g} ± {paper['reward_error']:g}",
        shown(margin, ".1f"),
    )
