"""The paper's table (tab:safety): every method on every environment, beside the published row.

A star marks a number of ours outside the published 95% interval: mean ± 1.96 standard errors and
half of the last printed digit; for the share of safe seeds the exact binomial interval of 30 seeds.
"""

from typing import Any

from canary.numerics.binomial import clopper_pearson_interval
from canary.reporting.statistics import margin_per_jitter
from canary.studies.page import Numbers, Page, Paths, Row
from canary.studies.table import (
    ABOUT_FINAL,
    ABOUT_IMPROVEMENT,
    FINAL_COLUMNS,
    final_cells,
    margin_cell,
    shown,
    table_numbers,
    with_error,
    with_interval,
)

SEEDS = 30  # of a published row
HALF_DIGIT = {"violation": 0.0005, "jitter": 0.00005}  # half of the last printed digit
COLUMNS = (
    "environment", "method", "P", "jitter × 10³", "safe", "J", "(ε−P)/jitter", "P, whole training",
    "IQM J [95%]", "P(J above the first's) [95%]", *FINAL_COLUMNS, "seeds × steps", "code",
)  # fmt: skip


def save(page: Page) -> Paths:
    data = [
        values | outside(values, row.about["paper"])
        for row, values in zip(page.shown, table_numbers(page.shown), strict=True)
    ]
    by_name = {values["row"]: values for values in data}
    return page.table(
        "Second half of training, ± standard error over seeds; the published rows are of "
        f"{SEEDS} seeds.\nA star marks a number of ours outside the published 95% interval (mean ± "
        "1.96 standard errors and half of the\nlast printed digit; for the share of safe seeds the "
        f"exact binomial interval).\n{ABOUT_IMPROVEMENT}\n{ABOUT_FINAL}",
        COLUMNS,
        lambda row: [_cells(row, by_name[row.name]), *_published(row)],
        data,
        names=_names,
    )


def _names(row: Row) -> tuple[str, str]:
    return row.about["environment"], row.label


def outside(values: Numbers, paper: dict[str, Any] | None) -> dict[str, bool | None]:
    """For P, jitter, J and safe: does ours lie outside the published interval? None: not known."""
    result: dict[str, bool | None] = {}
    for name in ("violation", "jitter", "reward", "safe"):
        ours = values[name]
        if paper is None or ours is None:
            result[f"{name}_outside"] = None
            continue
        if name == "safe":
            lower, upper = clopper_pearson_interval(round(paper["safe"] * SEEDS), SEEDS)
        else:
            digit = HALF_DIGIT.get(name) or half_digit(paper["reward"])
            half = 1.96 * paper[f"{name}_error"] + digit
            lower, upper = paper[name] - half, paper[name] + half
        result[f"{name}_outside"] = not bool(lower <= ours <= upper)
    return result


def half_digit(printed: float) -> float:
    """Half of the last printed digit: 0.5 of 81, 0.05 of 4.0, 0.005 of 0.67."""
    return 0.5 * 10.0 ** -len(repr(printed).partition(".")[2])


def _cells(row: Row, values: Numbers) -> tuple[str, ...]:
    def scaled(name: str, scale: float, form: str) -> str:
        return shown(None if values[name] is None else values[name] * scale, form)

    star = {name: "*" if values[f"{name}_outside"] else "" for name in ("violation", "jitter", "safe", "reward")}  # fmt: skip
    form = ".3f" if abs(values["reward"] or 0) < 10 else ".1f"
    return (
        *_names(row),
        with_error(values["violation"], values["violation_error"]) + star["violation"],
        f"{scaled('jitter', 1e3, '.1f')} ± {scaled('jitter_error', 1e3, '.1f')}{star['jitter']}",
        shown(values["safe"], ".0%") + star["safe"],
        f"{shown(values['reward'], form)} ± {shown(values['reward_error'], form)}{star['reward']}",
        margin_cell(values),
        with_error(values["violation_whole"], values["violation_whole_error"]),
        with_interval(values, "iqm_reward", "iqm_reward", form),
        with_interval(values, "improvement", "improvement", ".2f"),
        *final_cells(values, form),
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
