"""The paper's table (tab:safety): every method on every environment beside the published row.

A number of ours is marked * where it lies outside the published 95% interval: mean ± 1.96 standard
errors, widened by half of the last digit that the paper prints of the mean; for the share of safe
seeds the exact binomial interval of 30 seeds. How far our own few seeds may be off does not enter.
"""

from pathlib import Path
from typing import Any

from canary.numerics.binomial import clopper_pearson_interval
from canary.reporting.statistics import margin_per_jitter
from canary.studies.cells import (
    ABOUT_FINAL,
    ABOUT_IMPROVEMENT,
    FINAL_COLUMNS,
    final_cells,
    margin_cell,
    with_error,
    with_interval,
)
from canary.studies.page import paths_of, shown, write_data, write_page
from canary.studies.rows import Row
from canary.studies.table import table_rows

PAPER_SEEDS = 30
DIGITS = {"violation": 0.0005, "jitter": 0.00005}  # half of the last printed digit
COLUMNS = (
    "environment", "method", "P", "jitter × 10³", "safe", "J", "(ε−P)/jitter", "IQM J [95%]",
    "P(J above the first's) [95%]", *FINAL_COLUMNS, "seeds × steps", "code",
)  # fmt: skip


def save(
    results: Path, study: dict[str, Any], rows: list[Row], problems: list[str]
) -> dict[str, Path]:
    """Write table.md and table.csv; returns their paths by label."""
    data = [
        values | outside(values, row.about["paper"])
        for row, values in zip(rows, table_rows(rows), strict=True)
    ]
    write_data(results, data)
    cells = []
    for row, values in zip(rows, data, strict=True):
        cells.append(_cells(values))
        if row.about["paper"]:
            published = _published(row.about["paper"], row.summary["epsilon"])
            blank = len(COLUMNS) - 2 - len(published)
            cells.append(("", "*published*", *published, *[""] * blank))
    write_page(
        results,
        study,
        "Second half of training, ± standard error over seeds; the published rows are of\n"
        f"{PAPER_SEEDS} seeds. A star marks a number of ours outside the published 95% interval: "
        "mean ± 1.96 standard errors\n"
        "and half of the last printed digit; for a share of safe seeds the exact binomial interval "
        f"of {PAPER_SEEDS} seeds, which takes no\n"
        "account of how few ours are (1 of 30 published, [0.1%, 17%], and 0 of 3 here is a star). "
        "IQM J is the interquartile\n"
        "mean with a bootstrap interval; the first row is that of the environment.\n"
        f"{ABOUT_IMPROVEMENT}\n{ABOUT_FINAL}\n"
        "Where a method has two rows, they are as it is here (preset `fast`) and as published "
        "(`paper`).",
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
            digit = DIGITS.get(name) or half_digit(paper["reward"])
            half = 1.96 * paper[f"{name}_error"] + digit
            lower, upper = paper[name] - half, paper[name] + half
        result[f"{name}_outside"] = not bool(lower <= ours <= upper)
    return result


def half_digit(printed: float) -> float:
    """Half of the last digit of a number that is stored as it is printed: 0.5 of 81, 0.05 of 4.0,
    0.005 of 0.67."""
    return 0.5 * 10.0 ** -len(repr(printed).partition(".")[2])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def show(name: str, form: str, scale: float = 1.0) -> str:
        return shown(None if row[name] is None else row[name] * scale, form)

    def star(name: str) -> str:
        return "*" if row[f"{name}_outside"] else ""

    digits = ".3f" if abs(row["reward"] or 0) < 10 else ".1f"
    return (
        row["environment"],
        f"{row['algorithm']} (`{row['preset']}`)",
        with_error(row["violation"], row["violation_error"]) + star("violation"),
        f"{show('jitter', '.1f', 1e3)} ± {show('jitter_error', '.1f', 1e3)}{star('jitter')}",
        f"{show('safe', '.0%')}{star('safe')}",
        f"{show('reward', digits)} ± {show('reward_error', digits)}{star('reward')}",
        margin_cell(row),
        with_interval(row, "iqm_reward", "iqm_reward", digits),
        with_interval(row, "improvement", "improvement", ".2f"),
        *final_cells(row, digits),
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
