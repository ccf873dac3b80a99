"""The paper's table (tab:safety): every method on every environment, beside the published row.

A star marks a number of ours outside the published 95% interval: mean ± 1.96 standard errors and
half of the last printed digit; for the share of safe seeds the exact binomial interval of 30 seeds.
"""

from typing import Any

from canary.numerics.statistics import clopper_pearson_interval
from canary.reporting.statistics import margin_per_jitter
from canary.studies import table
from canary.studies.page import Line, Numbers, Page, Paths, Row

SEEDS = 30  # of a published row
MEASURES = ("violation", "jitter", "reward", "safe")
SHARED = ("(ε−P)/jitter", "P, whole training", "IQM J [95%]", "P(J above the first's) [95%]")


def save(page: Page) -> Paths:
    found = table.table_numbers(page.shown)
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
        f"exact binomial interval).\n{table.ABOUT_IMPROVEMENT}\n{table.ABOUT_FINAL}",
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
        return table.shown(None if value is None else 1e3 * value, ".1f")

    star = {name: "*" if values[f"{name}_outside"] else "" for name in MEASURES}
    usual = table.cells(row, values)
    return {
        "P": usual["P"] + star["violation"],
        "jitter × 10³": table.with_error(values, "jitter", thousandths) + star["jitter"],
        "safe": usual["safe"] + star["safe"],
        "J": usual["J"] + star["reward"],
        **{name: usual[name] for name in SHARED},
        **table.final_cells(values),
        **row.size,
    }


def _published(epsilon: float | None, paper: dict[str, Any]) -> Line:
    return {
        "method": "*published*",
        "P": f"{paper['violation']:.3f} ± {paper['violation_error']:.3f}",
        "jitter × 10³": f"{paper['jitter'] * 1e3:.1f} ± {paper['jitter_error'] * 1e3:.1f}",
        "safe": f"{paper['safe']:.0%}",
        "J": f"{paper['reward']:g} ± {paper['reward_error']:g}",
        "(ε−P)/jitter": table.shown(
            margin_per_jitter(epsilon, paper["violation"], paper["jitter"]), ".1f"
        ),
    }
