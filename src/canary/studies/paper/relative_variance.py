"""The paper's relative variance of constraint estimates against epsilon (fig:relative-variance), from
the points of `variance_points`."""

from pathlib import Path

import numpy as np
import polars as pl

from canary.errors import CanaryError
from canary.numerics.regression import fitted_exponent
from canary.studies.page import Page, Paths
from canary.studies.store import read_sealed

TITLES = {"monte-carlo": "Monte Carlo, exact", "gae": "GAE with fitted critics"}
QUANTITIES = ("value", "gradient")
COLOURS = {"indicator": "#3a9a5b", "cvar": "#7d4fa8", "cantelli": "#2f6db5"}


def save(page: Page) -> Paths:
    path = page.folder / "points.json"
    points, seeds = read_sealed(path)["points"] if path.exists() else [], page.study.get("seeds")
    points = [one for one in points if seeds is None or one["seed"] is None or one["seed"] in seeds]
    if not points:
        raise CanaryError(
            f"{page.folder} holds no point yet; compute them with `canary reproduce "
            f"{page.folder.name}`."
        )
    data = pl.DataFrame(points, infer_schema_length=None)
    _figure(data, page.folder / "relative-variance.png")
    return page.write(
        "Exponents of the relative variance in ε, fitted for ε < 0.1 (± 95% interval):\n"
        "-1 is the rate 1/ε, 0 is stable. One policy of IcyLake; the limit moves, and violations "
        "are ε/2 everywhere.\nMonte Carlo is exact (docs/relative-variance.md); GAE is measured "
        "over 200 batches of 4,000 steps per seed, with\ncritics fitted to the policy.\nThe paper: "
        "near -1 for indicator and CVaR, near 0 for Cantelli.",
        ("constraint", *(f"{TITLES[e]}: {q}" for e in TITLES for q in QUANTITIES),
         "points with GAE: value, gradient"),
        [_cells(data, constraint) for constraint in _constraints(data)],
        data,
        "relative-variance.png",
        "Points with GAE are those that a fit uses, of those measured at ε < 0.1. A point is left "
        "out if its signal is\nsmaller than the noise of all its batches together, as a value near "
        "0 is.",
    )  # fmt: skip


def exponent(
    data: pl.DataFrame, estimator: str, constraint: str, quantity: str
) -> tuple[float, float, int, int]:
    """Slope of log kappa^2 over log epsilon below 0.1, its 95% half-width, points used, points in
    all."""
    rows = data.filter(
        (pl.col("estimator") == estimator)
        & (pl.col("constraint") == constraint)
        & (pl.col("epsilon") < 0.1)
    )
    known = rows.filter(pl.col(quantity).is_not_null() & (pl.col(quantity) > 0))
    slope, half = fitted_exponent(known["epsilon"].to_numpy(), known[quantity].to_numpy())
    return slope, half, len(known), len(rows)


def _constraints(data: pl.DataFrame) -> list[str]:
    """Those of the paper first, then the shaped ones by their dead zone."""
    return sorted(data["constraint"].unique(), key=lambda name: (name.startswith("shaped"), name))


def _cells(data: pl.DataFrame, constraint: str) -> list[str]:
    cells = [constraint]
    for estimator in TITLES:
        for quantity in QUANTITIES:
            slope, half, *_ = exponent(data, estimator, constraint, quantity)
            cells.append("-" if np.isnan(slope) else f"{slope:+.2f} ± {half:.2f}")
    counts = [exponent(data, "gae", constraint, quantity)[2:] for quantity in QUANTITIES]
    return [*cells, f"{', '.join(str(known) for known, _ in counts)} of {counts[0][1]}"]


def _figure(data: pl.DataFrame, path: Path) -> None:
    import matplotlib.pyplot as plt

    from canary.reporting.figures import STYLE
    from canary.reporting.figures import save as save_figure

    names = _constraints(data)
    shades = iter(plt.get_cmap("viridis")(np.linspace(0.25, 0.95, max(1, len(names) - 3))))
    colours = {name: COLOURS[name] if name in COLOURS else next(shades) for name in names}
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(2, 2, figsize=(8.6, 6.4), layout="constrained", sharex="col")
        panels = [(estimator, quantity) for estimator in TITLES for quantity in QUANTITIES]
        for axes, (estimator, quantity) in zip(grid.flat, panels, strict=True):
            for name in names:
                line = data.filter(
                    (pl.col("estimator") == estimator)
                    & (pl.col("constraint") == name)
                    & pl.col(quantity).is_not_null()
                ).group_by("epsilon").agg(
                    mean=pl.col(quantity).log().mean().exp(),
                    low=pl.col(quantity).min(), high=pl.col(quantity).max(),
                ).sort("epsilon")  # fmt: skip
                style = {"color": colours[name], "marker": ".", "label": name}
                axes.plot(line["epsilon"], line["mean"], "-" if name in COLOURS else "--", **style)
                band = line["epsilon"], line["low"], line["high"]
                axes.fill_between(*band, color=colours[name], alpha=0.15)
            axes.set(xscale="log", yscale="log", xlabel="epsilon")
            axes.set_title(f"{quantity}: {TITLES[estimator]}")
        for row in grid:
            row[0].set_ylabel("relative variance κ²")
        grid[0, 1].legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        save_figure(figure, path)
