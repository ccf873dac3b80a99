"""The paper's relative variance of constraint estimates against epsilon (fig:relative-variance).

One policy of IcyLake; the limit moves, and epsilon is twice the violation probability there
(ass:slack). `monte-carlo`: the theory's unbiased estimators, exact by dynamic programming. `gae`: the
algorithms' own estimators with fitted critics (`estimators`). Points are stored one by one, so an
interrupted study continues.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from canary.errors import CanaryError
from canary.numerics.statistics import fitted_exponent
from canary.reporting.figures import canvas, legend_beside
from canary.studies.page import Line, Page, Paths
from canary.studies.store import read_sealed, write_sealed

EPISODES = 100
VIOLATION = 0.01  # of the policy at limit 5.5
SEEDS = (2500, 2501, 2502)
LIMITS = tuple(np.arange(2.5, 13))
GAE_LIMITS = (3.5, 4.5, 5.5, 6.5, 7.5)
PARTS: dict[str, tuple[str, float | None]] = {
    "indicator": ("indicator", None),
    "cvar": ("cvar", None),
    "cantelli": ("cantelli", None),
    **{f"shaped-{d:g}": ("cantelli", d) for d in (0.0, 0.3, 0.6, 0.9)},
}  # constraint and dead zone
TITLES = {"monte-carlo": "Monte Carlo, exact", "gae": "GAE with fitted critics"}
PANELS = [(estimator, name) for estimator in TITLES for name in ("value", "gradient")]
COLOURS = {"indicator": "#3a9a5b", "cvar": "#7d4fa8", "cantelli": "#2f6db5"}

Point = dict[str, Any]
Compute = Callable[[Point], Point]


def key_of(point: Point) -> str:
    return f"{point['estimator']}/{point['constraint']}/{point['limit']:g}/{point['seed']}"


def complete(
    folder: Path,
    seeds: tuple[int, ...],
    only: tuple[str, ...] = (),
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> None:
    """Compute the points that are missing in points.json."""
    from canary.environments.icy_lake import IcyLake
    from canary.exact import cost_law, from_environment
    from canary.runs.manifest import code_fingerprint
    from canary.theory import with_violation

    path = folder / "points.json"
    known = read_sealed(path)["points"] if path.exists() else []
    have = {key_of(point) for point in known}
    lake = from_environment(IcyLake())
    policy = with_violation(lake, 5.5, VIOLATION)
    law = cost_law(lake, policy)
    epsilons = {float(limit): 2 * law.violation(limit) for limit in LIMITS}
    todo = [point for point in _planned(epsilons, seeds, only) if key_of(point) not in have]
    makers = {"monte-carlo": _exact_points(lake, policy), "gae": _measured_points(policy)}
    code = code_fingerprint()
    for done, point in enumerate(todo):
        progress(done, len(todo), key_of(point))
        known.append(point | {"code": code} | makers[point["estimator"]](point))
        write_sealed(path, {"points": sorted(known, key=key_of)})


def _planned(
    epsilons: dict[float, float], seeds: tuple[int, ...], only: tuple[str, ...]
) -> Iterator[Point]:
    for constraint in only or PARTS:
        for limit, epsilon in epsilons.items():
            point = {"constraint": constraint, "limit": limit, "epsilon": epsilon}
            yield point | {"estimator": "monte-carlo", "seed": None}
            if limit in GAE_LIMITS:
                yield from (point | {"estimator": "gae", "seed": seed} for seed in seeds)


def _exact_points(lake: Any, policy: np.ndarray) -> Compute:
    from canary import theory

    law = theory.scored_law(lake, policy)

    def compute(point: Point) -> Point:
        name, dead_zone = PARTS[point["constraint"]]
        terms = law, point["limit"], point["epsilon"]
        if name == "cantelli":
            constraint = theory.cantelli(*terms, dead_zone)
        else:
            constraint = {"indicator": theory.indicator, "cvar": theory.cvar}[name](*terms)
        value, gradient = theory.of_value(constraint, law), theory.of_gradient(constraint, law)
        return {
            "value": value.of_batch(EPISODES),
            "gradient": gradient.of_batch(EPISODES),
            "active": value.active,
        }

    return compute


def _measured_points(policy: np.ndarray) -> Compute:
    import jax

    from canary.studies.paper import estimators

    @cache
    def program(constraint: str) -> Callable[..., dict[str, np.ndarray]]:
        return estimators.batches(estimators.estimator(*PARTS[constraint]))

    @cache
    def network(seed: int) -> Any:
        return estimators.imitate(policy, jax.random.key(seed))

    def compute(point: Point) -> Point:
        terms = network(point["seed"]), point["limit"], point["epsilon"], point["seed"]
        found = program(point["constraint"])(*terms)
        episodes = float(found["episodes"].mean())
        known: Point = {"episodes": episodes}
        for name, samples in (("value", found["value"][:, None]), ("gradient", found["gradient"])):
            kappa = estimators.relative_variance(samples) * episodes / EPISODES
            known[name] = kappa if np.isfinite(kappa) else None
        return known

    return compute


def save(page: Page) -> Paths:
    path = page.folder / "points.json"
    if not path.exists():
        raise CanaryError(f"{path} is missing; `canary reproduce {page.folder.name}` makes it.")
    data = pl.DataFrame(read_sealed(path)["points"], infer_schema_length=None)
    # Those of the paper first, then the shaped ones by their dead zone
    names = sorted(data["constraint"].unique(), key=lambda name: (name.startswith("shaped"), name))
    return page.write(
        "Exponents of the relative variance in ε, fitted for ε < 0.1 (± 95% interval):\n"
        "-1 is the rate 1/ε, 0 is stable. One policy of IcyLake; the limit moves, and violations "
        "are ε/2 everywhere.\nMonte Carlo is exact (docs/relative-variance.md); GAE is measured "
        "over 200 batches of 4,000 steps per seed, with\ncritics fitted to the policy.\nThe paper: "
        "near -1 for indicator and CVaR, near 0 for Cantelli.",
        [_cells(data, constraint) for constraint in names],
        data,
        _figure(data, names),
        "Points with GAE are those that a fit uses, of those measured at ε < 0.1. A point is left "
        "out if its signal is\nsmaller than the noise of all its batches together, as a value near "
        "0 is.",
    )


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


def _cells(data: pl.DataFrame, constraint: str) -> Line:
    fits = [exponent(data, estimator, constraint, quantity) for estimator, quantity in PANELS]
    slopes = ["-" if np.isnan(slope) else f"{slope:+.2f} ± {half:.2f}" for slope, half, *_ in fits]
    (*_, value, every), (*_, gradient, _) = fits[2:]
    heads = [f"{TITLES[estimator]}: {quantity}" for estimator, quantity in PANELS]
    return {
        "constraint": constraint,
        **dict(zip(heads, slopes, strict=True)),
        "points with GAE: value, gradient": f"{value}, {gradient} of {every}",
    }


def _figure(data: pl.DataFrame, names: list[str]) -> Figure:
    shades = iter(matplotlib.colormaps["viridis"](np.linspace(0.25, 0.95, max(1, len(names) - 3))))
    colours = {name: COLOURS[name] if name in COLOURS else next(shades) for name in names}
    with canvas(2, 2, (8.6, 6.4), sharex="col") as (figure, grid):
        for axes, (estimator, quantity) in zip(grid.flat, PANELS, strict=True):
            here = data.filter((pl.col("estimator") == estimator) & pl.col(quantity).is_not_null())
            for name in names:
                points = here.filter(pl.col("constraint") == name).group_by("epsilon")
                kappa = pl.col(quantity)
                line = points.agg(
                    mean=kappa.log().mean().exp(), low=kappa.min(), high=kappa.max()
                ).sort("epsilon")
                style = {"color": colours[name], "marker": ".", "label": name}
                axes.plot(line["epsilon"], line["mean"], "-" if name in COLOURS else "--", **style)
                band = line["epsilon"], line["low"], line["high"]
                axes.fill_between(*band, color=colours[name], alpha=0.15)
            axes.set(xscale="log", yscale="log", xlabel="epsilon")
            axes.set_title(f"{quantity}: {TITLES[estimator]}")
        for row in grid:
            row[0].set_ylabel("relative variance κ²")
        legend_beside(grid[0, 1])
    return figure
