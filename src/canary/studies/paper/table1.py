"""The paper's table (tab:safety): every method on every environment, above the published row."""

from canary.studies import table
from canary.studies.store import StoredRow, StoredStudy
from canary.studies.table import View
from canary.terminal.formatting import Line, Number


def view(study: StoredStudy) -> View:
    lines: list[Line] = []
    for row, line in zip(study.rows, table.row_lines(study.rows, table.cells), strict=True):
        cells = {name: cell for name, cell in line.items() if name != "row"}
        lines.append({"environment": row.environment, "method": row.label, **cells})
        if row.seeds and row.about["paper"]:
            lines.append(_published(row))
    return View(f"{table.ABOUT}\nThe published rows are of 30 seeds.", lines)


def _published(row: StoredRow) -> Line:
    paper, epsilon = row.about["paper"], row.epsilon
    return {
        "environment": row.environment,
        "method": f"*{row.about['algorithm']}, published*",
        "P": Number(paper["violation"], paper["violation_error"], epsilon=epsilon),
        "jitter": Number(paper["jitter"], paper["jitter_error"], epsilon=epsilon),
        "safe": f"{paper['safe']:.0%}",
        "J": Number(paper["reward"], paper["reward_error"]),
    }
