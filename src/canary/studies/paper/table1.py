"""The paper's table (tab:safety): every method on every environment, above the published row."""

from canary.numerics.statistics import clopper_pearson_interval
from canary.reporting.results import Results
from canary.reporting.statistics import over_seeds, safe_fraction
from canary.studies import table
from canary.studies.store import StoredStudy
from canary.studies.table import View
from canary.terminal.formatting import Line, Number

SEEDS = 30  # in a published row
HALF_DIGIT = {"EcoAnt": 0.5, "PointGoal2500": 0.05, "IcyLake": 0.005}
"""Half of the last printed digit of the paper's returns."""
ABOUT = (
    f"{table.ABOUT}\nThe published rows are of {SEEDS} seeds. `outside`: which measures of a `paper` or "
    "`authors` row lie outside the published 95%\ninterval (mean ± 1.96 standard errors, and half of "
    "the last digit; the exact binomial interval of safe)."
)


def view(study: StoredStudy) -> View:
    lines: list[Line] = []
    for row, line in zip(study.rows, table.row_lines(study.rows, _cells), strict=True):
        cells = {name: cell for name, cell in line.items() if name != "row"}
        lines.append({"environment": row.environment, "method": row.label, **cells})
        if row.seeds and row.about["paper"]:
            lines.append(_published(row))
    return View(ABOUT, lines)


def _cells(row: Results) -> Line:
    compared = row.about["paper"] and row.about["preset"] != "fast"
    return table.cells(row) | {"outside": ", ".join(outside(row)) or "none" if compared else None}


def outside(row: Results) -> list[str]:
    """The measures of a row that lie outside the published 95% interval."""
    paper, found = row.about["paper"], []
    for label, ours, published, rounding in (
        ("P", "violation", "violation", 5e-4),
        ("jitter", "jitter", "jitter", 5e-5),
        ("J", "return", "reward", HALF_DIGIT.get(row.environment, 0.0)),
    ):
        mean = over_seeds(row.each(ours)).mean
        width = 1.96 * paper[f"{published}_error"] + rounding
        if mean is not None and abs(mean - paper[published]) > width:
            found.append(label)
    safe = safe_fraction(row.each("constraint"), row.constraint.allowed)
    low, high = clopper_pearson_interval(round(paper["safe"] * SEEDS), SEEDS)
    return found if safe is None or low <= safe <= high else [*found, "safe"]


def _published(row: Results) -> Line:
    paper, epsilon = row.about["paper"], row.epsilon
    return {
        "environment": row.environment,
        "method": f"*{row.about['algorithm']}, published*",
        "P": Number(paper["violation"], paper["violation_error"], epsilon=epsilon),
        "jitter": Number(paper["jitter"], paper["jitter_error"], epsilon=epsilon),
        "safe": f"{paper['safe']:.0%}",
        "J": Number(paper["reward"], paper["reward_error"]),
    }
