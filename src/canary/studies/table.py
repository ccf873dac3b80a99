"""The table and the figure of a study, from the store. No JAX, no training.

A view is a function of a stored study. The default view, in this file, has the columns of the
paper's table (tab:safety) over the second half of training, P over all of training, and the final
policies. The others are in `paper/`.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from canary.numerics.statistics import clopper_pearson_interval
from canary.reporting.results import Results
from canary.reporting.statistics import over_seeds, safe_fraction
from canary.runs.files import write_atomically
from canary.studies.store import StoredStudy, read_study
from canary.terminal.formatting import Cell, Line, Number, csv, markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIEWS = {
    "study": "canary.studies.table",
    "table1": "canary.studies.paper.table1",
    "training-curves": "canary.studies.paper.training_curves",
    "epsilon-sweep": "canary.studies.paper.epsilon_sweep",
    "anatomy": "canary.studies.paper.anatomy",
    "gaussian-tail": "canary.studies.paper.gaussian_tail",
    "relative-variance": "canary.studies.paper.relative_variance",
    "worst-case": "canary.studies.paper.worst_case",
}  # the module of each view, with a function `view(study)`
SIZE = "seeds × steps"
LOWEST = 3e-4  # figures draw smaller probabilities here


class View(NamedTuple):
    """The lines, text and figure of a study."""

    about: str
    lines: list[Line]
    figure: "Figure | None" = None


def save_views(folder: Path) -> dict[str, Path]:
    """Write table.md, table.csv and the figure of a study; returns their paths by label."""
    stored = read_study(folder)
    study = stored.about
    shown: View = import_module(VIEWS[study["view"]]).view(stored)
    command = study.get("command") or f"canary reproduce {study['name']}"
    text = [f"# {study['title']}", "", f"`{command}`. {shown.about}", ""]
    paths = {"table": folder / "table.md", "data": folder / "table.csv"}
    write_atomically(paths["data"], csv(shown.lines).encode())
    if shown.figure is not None:
        from canary.reporting.figures import save  # matplotlib takes a second

        paths["figure"] = folder / f"{study['view']}.png"
        save(shown.figure, paths["figure"])
        text += [f"![{study['title']}]({paths['figure'].name})", ""]
    text += [*markdown(shown.lines), ""]
    write_atomically(paths["table"], "\n".join(text).encode())
    return paths


def view(study: StoredStudy) -> View:
    lines = row_lines(study.rows, lambda row: cells(row) | {"about": row.about["about"]})
    has_figure = study.shown and find_spec("matplotlib")  # an extra
    return View(ABOUT, lines, _figure(study.shown, study.about["title"]) if has_figure else None)


ABOUT = (
    "P, jitter, safe and J describe the second half of training (± standard error over seeds).\n"
    "Final P and J describe the final policies: exact, by dynamic programming, in a finite "
    "environment;\nelsewhere on fresh episodes, with a Clopper-Pearson 95% interval."
)


def row_lines(rows: Iterable[Results], cells: Callable[[Results], Line]) -> list[Line]:
    """The name, the cells and the size (seeds and steps) of each row."""
    lines: list[Line] = []
    for row in rows:
        size = f"{len(row.seeds)} × {row.steps:,}" if row.seeds else "not trained"
        lines.append({"row": row.name, **(cells(row) if row.seeds else {}), SIZE: size})
    return lines


def cells(row: Results) -> dict[str, Cell]:
    """The columns of the paper's table, P over the whole of training, and the final policies."""
    epsilon = row.epsilon or 0.02

    def mean(name: str, epsilon: float | None = None) -> Number:
        value, error, _ = over_seeds(row.each(name))
        return Number(value, error, epsilon=epsilon)

    safe = safe_fraction(row.each("constraint"), row.constraint.allowed)
    interval = None
    if episodes := row.final("episodes"):  # none: the values are exact
        ends = clopper_pearson_interval(sum(row.final("violations")), sum(episodes))
        interval = [float(end) for end in ends]
    return {
        "P": mean("violation", epsilon),
        "whole P": mean("violation_whole", epsilon),
        "jitter": mean("jitter", epsilon),
        "safe": None if safe is None else f"{safe:.0%}",
        "J": mean("return"),
        "final P": Number(over_seeds(row.final("violation")).mean, None, interval, epsilon),
        "final J": Number(over_seeds(row.final("return")).mean),
    }


def own_update(rows: Iterable[Results], environment: str, algorithm: str) -> Results | None:
    """The row with the authors' reading of the paper; the paper's networks before smaller ones."""
    found = [
        row
        for row in rows
        if (row.environment, row.about["algorithm"]) == (environment, algorithm)
        and row.about["preset"] == "authors"
    ]
    return min(found, key=lambda row: len(row.about["overrides"]), default=None)


def verdict(claim: str, here: str, holds: bool) -> str:
    """A claim of the paper, the result here, and whether the claim holds."""
    return f"Claim: {claim}. Here: {here}; it {'holds' if holds else 'does not hold'}."


def median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def thresholds(rows: list[Results]) -> list[float]:
    return sorted({row.epsilon for row in rows if row.epsilon is not None})


def by_environment(rows: list[Results]) -> dict[str, list[Results]]:
    found: dict[str, list[Results]] = {}
    for row in rows:
        found.setdefault(row.environment, []).append(row)
    return found


def _figure(rows: list[Results], title: str) -> "Figure":
    """Plot of P against J: a point per seed, a panel per environment."""
    from canary.reporting.figures import RED, canvas, colours, legend_beside, show_probabilities

    groups = by_environment(rows)
    height = 4.2 if len(groups) == 1 else 3.2 * len(groups)
    with canvas(len(groups), 1, (7.5, height)) as (figure, panels):
        for axes, (environment, here) in zip(panels[:, 0], groups.items(), strict=True):
            for index, (row, colour) in enumerate(zip(here, colours(len(here)), strict=True)):
                points = [(max(p, LOWEST), j) for p, j in row.pairs("violation", "return")]
                style = {"marker": "osD^vP*XphH"[index % 11], "alpha": 0.8, "linewidths": 0}
                axes.scatter(
                    *np.reshape(points, (-1, 2)).T, s=26, color=colour, label=row.name, **style
                )
            for epsilon in thresholds(here):
                axes.axvline(epsilon, color=RED, linewidth=1, linestyle="--")
            label = f"P, second half of training (at least {LOWEST:g}); dashed: ε"
            axes.set(xscale="log", xlabel=label, ylabel="return", title=environment)
            show_probabilities(axes.xaxis)
            legend_beside(axes, 1 + len(here) // 20)
        figure.suptitle(title)
    return figure
