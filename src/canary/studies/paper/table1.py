"""The paper's table (tab:safety): every method on every environment, beside the published row.

A star marks a number of ours outside the published 95% interval: mean ± 1.96 standard errors and
half of the last printed digit; for the share of safe seeds the exact binomial interval of 30 seeds.
"""

from typing import Any

from canary.numerics.statistics import clopper_pearson_interval
from canary.reporting.statistics import margin_per_jitter
from canary.studies.page import Line, Numbers, Page, Paths, Row
from canary.studies.table import (
    ABOUT_FINAL,
    ABOUT_IMPROVEMENT,
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


def save(page: Page) -> Paths:
    found = table_numbers(page.shown)
    data = {
        row.name: found[row.name] | outside(found[row.name], row.about["paper"])
        for row in page.shown
    }
    lines: list[Line | list[str]] = []
    for row, line in zip(
        page.rows, page.lines(lambda row: _cells(row, data[row.name]), _names), strict=True
    ):
        lines.append(line)
        if row.seeds and row.about["paper"]:
            lines.append(_published(row.epsilon, row.about["paper"]))
    return page.write(
        "Second half of training, ± standard error over seeds; the published rows are of "
        f"{SEEDS} seeds.\nA star marks a number of ours outside the published 95% interval (mean ± "
        "1.96 standard errors and half of the\nlast printed digit; for the share of safe seeds the "
        f"exact binomial interval).\n{ABOUT_IMPROVEMENT}\n{ABOUT_FINAL}",
        lines,
        list(data.values()),
    )


def _names(row: Row) -> Line:
    return {"environment": row.environment, "method": row.label}


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


def _cells(row: Row, values: Numbers) -> Line:
    def thousandths(value: float | None, _: float | None = None) -> str:
        return shown(None if value is None else 1e3 * value, ".1f")

    def starred(name: str, text: str) -> str:
        return text + ("*" if values[f"{name}_outside"] else "")

    jitter = with_error(values, "jitter", thousandths)
    returns = with_error(values, "reward", reward)
    return {
        "P": starred("violation", with_error(values, "violation")),
        "jitter × 10³": starred("jitter", jitter),
        "safe": starred("safe", shown(values["safe"], ".0%")),
        "J": starred("reward", returns),
        "(ε−P)/jitter": margin_cell(values),
        "P, whole training": with_error(values, "violation_whole"),
        "IQM J [95%]": with_interval(values, "iqm_reward", "iqm_reward", reward),
        "P(J above the first's) [95%]": improvement_cell(values),
        **final_cells(values),
        **row.size,
    }


def _published(epsilon: float | None, paper: dict[str, Any]) -> Line:
    return {
        "method": "*published*",
        "P": f"{paper['violation']:.3f} ± {paper['violation_error']:.3f}",
        "jitter × 10³": f"{paper['jitter'] * 1e3:.1f} ± {paper['jitter_error'] * 1e3:.1f}",
        "safe": f"{paper['safe']:.0%}",
        "J": f"{paper['reward']:g} ± {paper['reward_error']:g}",
        "(ε−P)/jitter": shown(
            margin_per_jitter(epsilon, paper["violation"], paper["jitter"]), ".1f"
        ),
    }
