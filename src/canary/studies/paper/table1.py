"""The paper's table (tab:safety): every method on every environment, beside the published row.

A star marks a number of ours outside the published 95% interval: mean ± 1.96 standard errors and
half of the last printed digit; for the share of safe seeds the exact binomial interval of 30 seeds.
"""

from typing import Any

from canary.numerics.statistics import clopper_pearson_interval
from canary.reporting.statistics import margin_per_jitter
from canary.studies.page import Numbers, Page, Paths, Row
from canary.studies.table import (
    ABOUT_FINAL,
    ABOUT_IMPROVEMENT,
    FINAL_COLUMNS,
    final_cells,
    improvement_cell,
    margin_cell,
    reward,
    shown,
    table_numbers,
    with_error,
    with_interval,
)

SEEDS = 30  # of a published row
MEASURES = ("violation", "jitter", "reward", "safe")
COLUMNS = (
    "environment", "method", "P", "jitter × 10³", "safe", "J", "(ε−P)/jitter", "P, whole training",
    "IQM J [95%]", "P(J above the first's) [95%]", *FINAL_COLUMNS, "seeds × steps", "code",
)  # fmt: skip


def save(page: Page) -> Paths:
    found = table_numbers(page.shown)
    data = {
        row.name: found[row.name] | outside(found[row.name], row.about["paper"])
        for row in page.shown
    }
    return page.write(
        "Second half of training, ± standard error over seeds; the published rows are of "
        f"{SEEDS} seeds.\nA star marks a number of ours outside the published 95% interval (mean ± "
        "1.96 standard errors and half of the\nlast printed digit; for the share of safe seeds the "
        f"exact binomial interval).\n{ABOUT_IMPROVEMENT}\n{ABOUT_FINAL}",
        COLUMNS,
        page.lines(COLUMNS, lambda row: [_cells(row, data[row.name]), *_published(row)], _names),
        list(data.values()),
    )


def _names(row: Row) -> tuple[str, str]:
    return row.environment, row.label


def outside(values: Numbers, paper: dict[str, Any] | None) -> dict[str, bool | None]:
    """For each measure: does ours lie outside the published interval? None: not known."""
    result: dict[str, bool | None] = {f"{name}_outside": None for name in MEASURES}
    for name in MEASURES:
        if paper is None or values[name] is None:
            continue
        if name == "safe":
            lower, upper = clopper_pearson_interval(round(paper["safe"] * SEEDS), SEEDS)
        else:
            half_digit = {"violation": 0.0005, "jitter": 0.00005}.get(name)
            if half_digit is None:  # 0.5 of 81, 0.05 of 4.0, 0.005 of 0.67
                half_digit = 0.5 * 10.0 ** -len(repr(paper[name]).partition(".")[2])
            half = 1.96 * paper[f"{name}_error"] + half_digit
            lower, upper = paper[name] - half, paper[name] + half
        result[f"{name}_outside"] = not bool(lower <= values[name] <= upper)
    return result


def _cells(row: Row, values: Numbers) -> tuple[str, ...]:
    def thousandths(value: float | None, _: float | None = None) -> str:
        return shown(None if value is None else 1e3 * value, ".1f")

    star = {name: "*" if values[f"{name}_outside"] else "" for name in MEASURES}
    jitter = with_error(values["jitter"], values["jitter_error"], thousandths)
    return (
        *_names(row),
        with_error(values["violation"], values["violation_error"]) + star["violation"],
        jitter + star["jitter"],
        shown(values["safe"], ".0%") + star["safe"],
        with_error(values["reward"], values["reward_error"], reward) + star["reward"],
        margin_cell(values),
        with_error(values["violation_whole"], values["violation_whole_error"]),
        with_interval(values, "iqm_reward", "iqm_reward", reward),
        improvement_cell(values),
        *final_cells(values),
        row.size,
        row.codes,
    )


def _published(row: Row) -> list[tuple[str, ...]]:
    paper = row.about["paper"]
    if paper is None:
        return []
    cells = (
        f"{paper['violation']:.3f} ± {paper['violation_error']:.3f}",
        f"{paper['jitter'] * 1e3:.1f} ± {paper['jitter_error'] * 1e3:.1f}",
        f"{paper['safe']:.0%}",
        f"{paper['reward']:g} ± {paper['reward_error']:g}",
        shown(margin_per_jitter(row.epsilon, paper["violation"], paper["jitter"]), ".1f"),
    )
    return [("", "*published*", *cells, *[""] * (len(COLUMNS) - 2 - len(cells)))]
