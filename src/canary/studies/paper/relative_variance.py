"""The paper's relative variance of constraint estimates against epsilon (fig:relative-variance).

The policy of IcyLake is fixed. The limit varies, and epsilon is twice the violation probability at
that limit (ass:slack). `monte-carlo`: the theory's unbiased estimators, exact by dynamic
programming. `gae`: the algorithms' estimators with fitted critics (`estimators`); `priced` is
Canary's. Parts named `-long` have another lake, with episodes three times as long.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.figure import Figure
from scipy.special import stdtrit

from canary.reporting.figures import canvas, legend_beside
from canary.studies.store import StoredStudy
from canary.studies.table import View, verdict
from canary.terminal.formatting import Cell, Line

EPISODES = 100
FLAT = -0.2  # an exponent counts as flat if it is not smaller
LIMIT, VIOLATION = 5.5, 0.01  # at this limit the policy has this P
SEEDS = (2500, 2501, 2502)
LIMITS = tuple(np.arange(2.5, 13))
GAE_LIMITS = (3.5, 4.5, 5.5, 6.5, 7.5)
PARTS: dict[str, tuple[str, float | None]] = {
    "indicator": ("indicator", None),
    "cvar": ("cvar", None),
    "cantelli": ("cantelli", None),
    **{f"shaped-{d:g}": ("cantelli", d) for d in (0.0, 0.3, 0.6, 0.9)},
    **dict.fromkeys(("priced", "priced-long"), ("priced", 0.6)),
    "shaped-0.6-long": ("cantelli", 0.6),
    **dict.fromkeys(("whole", "whole-long"), ("whole", 0.6)),
}  # constraint and dead zone
LONG = "-long"
TITLES = {"monte-carlo": "Monte Carlo, exact", "gae": "GAE with fitted critics"}
PANELS = [(estimator, name) for estimator in TITLES for name in ("value", "gradient")]
COLOURS = {"indicator": "#3a9a5b", "cvar": "#7d4fa8", "cantelli": "#2f6db5", "priced": "#c8553d"}

Point = dict[str, Any]


def missing(
    known: list[Point], seeds: tuple[int, ...], only: tuple[str, ...]
) -> list[tuple[str, Callable[[], list[Point]]]]:
    """The missing points: their names, and functions that compute them."""
    import jax

    from canary.environments.icy_lake import IcyLake
    from canary.exact import from_environment
    from canary.studies.paper import estimators
    from canary.theory import scored_law, with_violation

    lakes = {False: IcyLake(), True: IcyLake(map="8x8", horizon=400)}  # by is_long
    mdp, have = from_environment(lakes[False]), {name_of(point) for point in known}
    law = scored_law(mdp, with_violation(mdp, LIMIT, VIOLATION))

    @cache
    def program(constraint: str) -> Callable[..., dict[str, np.ndarray]]:
        return estimators.batches(*PARTS[constraint], lakes[constraint.endswith(LONG)])

    @cache
    def network(seed: int, is_long: bool) -> Any:
        chance = with_violation(from_environment(lakes[is_long]), LIMIT, VIOLATION)
        return estimators.imitate(chance, jax.random.key(seed))

    def compute(point: Point) -> list[Point]:
        if point["estimator"] == "monte-carlo":
            return [point | exact(law, point)]
        constraint, seed = point["constraint"], point["seed"]
        terms = network(seed, constraint.endswith(LONG)), point["limit"], point["epsilon"], seed
        return [point | measured(program(constraint)(*terms))]

    points = _planned({float(limit): 2 * law.violation(limit) for limit in LIMITS}, seeds, only)
    named = {name_of(point): partial(compute, point) for point in points}
    return [(name, compute) for name, compute in named.items() if name not in have]


def name_of(point: Point) -> str:
    return f"{point['estimator']}/{point['constraint']}/{point['limit']:g}/{point['seed']}"


def _planned(
    epsilons: dict[float, float], seeds: tuple[int, ...], only: tuple[str, ...]
) -> Iterator[Point]:
    for constraint in only or PARTS:
        is_one = constraint.endswith(LONG) or constraint == "whole"
        for limit, epsilon in ({LIMIT: 2 * VIOLATION} if is_one else epsilons).items():
            point = {"constraint": constraint, "limit": limit, "epsilon": epsilon}
            if not is_one and constraint != "priced":  # priced needs critics
                yield point | {"estimator": "monte-carlo", "seed": None}
            if limit in GAE_LIMITS:
                yield from (point | {"estimator": "gae", "seed": seed} for seed in seeds)


def exact(law: Any, point: Point) -> Point:
    """kappa^2 of the unbiased estimators."""
    from canary import theory

    name, dead_zone = PARTS[point["constraint"]]
    shape = {} if dead_zone is None else {"dead_zone": dead_zone}
    constraint = getattr(theory, name)(law, point["limit"], point["epsilon"], **shape)
    return {
        "value": constraint.noise_of_value(EPISODES),
        "gradient": constraint.noise_of_gradient(EPISODES),
        "active": constraint.active_probability,
    }


def measured(batches: dict[str, np.ndarray]) -> Point:
    """kappa^2 of an estimator from its values and gradients in many batches, in units of a batch of
    EPISODES; None if the noise hides the signal.

    kappa^2 = Var / |mean|^2, where |mean|^2 is reduced by its bias, Var / batches.
    """
    episodes = float(batches["episodes"].mean())
    found: Point = {"episodes": episodes}
    for name, samples in (("value", batches["value"][:, None]), ("gradient", batches["gradient"])):
        variance = float(samples.var(0, ddof=1).sum())
        signal = float((samples.mean(0) ** 2).sum()) - variance / len(samples)
        found[name] = variance / signal * episodes / EPISODES if signal > 0 else None
    return found


ABOUT = (
    "Exponents of the relative variance κ² in ε, fitted for ε < 0.1 (± 95% interval):\n"
    "-1 is the rate 1/ε, 0 is stable. One policy of IcyLake; the limit moves, and violations "
    "are ε/2 everywhere.\nMonte Carlo is exact (docs/relative-variance.md); GAE is measured "
    "over 200 batches of 4,000 steps per seed, with\ncritics fitted to the policy.\nThe paper: "
    "near -1 for indicator and CVaR, near 0 for Cantelli. `priced` is Canary's gradient, made of "
    "critics, with\nthe dead zone of shaped-0.6; `whole` is shaped-0.6 with λ = 1 instead of 0.95. "
    "`-long`: the 8x8 lake, with\n117 steps an episode instead of 42. κ² is of 100 episodes: the "
    "geometric mean over seeds and the range. `points` are those\nthat the fits of GAE use, of "
    "those at ε < 0.1: a point whose signal is smaller than the noise of all its batches is left out."
)


def view(study: StoredStudy) -> View:
    data = pl.DataFrame(sorted(study.points, key=name_of), infer_schema_length=None)
    # The paper's constraints first, then the shaped ones by dead zone
    names = sorted(data["constraint"].unique(), key=lambda name: (name.startswith("shaped"), name))
    drawn = [name for name in names if name != "whole" and not name.endswith(LONG)]
    about = "\n".join((ABOUT, *_claims(data)))
    return View(about, [_cells(data, name) for name in names], _figure(data, drawn))


def _claims(data: pl.DataFrame) -> list[str]:
    """The claims about gradients with fitted critics."""
    fits = {
        name: exponent(data, "gae", name, "gradient") for name in ("indicator", "cvar", "cantelli")
    }
    if not all(used for *_, used, _ in fits.values()):
        return []
    grow = all(slope + half < 0 for slope, half, *_ in (fits["indicator"], fits["cvar"]))
    flat = fits["cantelli"][0] > FLAT
    slopes = ", ".join(f"{name} {slope:+.2f}" for name, (slope, *_) in fits.items())
    claim = "as ε falls, κ² of indicator and CVaR grows and Cantelli's stays flat"
    return [verdict(claim, f"exponents of the gradient with critics: {slopes}", grow and flat)]


def fitted_exponent(thresholds: np.ndarray, noise: np.ndarray) -> tuple[float, float]:
    """Slope of log kappa^2 over log epsilon by least squares, and the half-width of its 95% Student
    interval; NaN with fewer than three thresholds. -1 is the rate 1 / epsilon, 0 is stable."""
    from scipy.stats import linregress

    x, y = np.log(thresholds), np.log(noise)
    if len(set(x)) < 3:
        return np.nan, np.nan
    fit = linregress(x, y)
    return fit.slope, float(stdtrit(len(x) - 2, 0.975)) * fit.stderr


def exponent(
    data: pl.DataFrame, estimator: str, constraint: str, quantity: str
) -> tuple[float, float, int, int]:
    """The fitted exponent below epsilon 0.1, its half-width, points used, points in all."""
    is_own = (pl.col("estimator") == estimator) & (pl.col("constraint") == constraint)
    rows = data.filter(is_own & (pl.col("epsilon") < 0.1))
    known = rows.filter(pl.col(quantity) > 0)
    slope, half = fitted_exponent(known["epsilon"].to_numpy(), known[quantity].to_numpy())
    return slope, half, len(known), len(rows)


def _cells(data: pl.DataFrame, constraint: str) -> Line:
    line: dict[str, Cell] = {"constraint": constraint}
    fits = [exponent(data, estimator, constraint, quantity) for estimator, quantity in PANELS]
    for (estimator, quantity), (slope, half, *_) in zip(PANELS, fits, strict=True):
        fit = None if np.isnan(slope) else f"{slope:+.2f} ± {half:.2f}"
        line[f"{TITLES[estimator]}: {quantity}"] = fit
    here = (pl.col("estimator") == "gae", pl.col("limit") == LIMIT)
    own = data.filter(pl.col("constraint") == constraint, *here)
    kappa = own["gradient"].drop_nulls().to_numpy()
    if len(kappa):
        level = f"{np.exp(np.log(kappa).mean()):.1f} [{kappa.min():.1f}, {kappa.max():.1f}]"
        line["κ² of the gradient at ε = 0.02, GAE"] = level
    (*_, value, every), (*_, gradient, _) = fits[2:]
    return line | {"points: value, gradient": f"{value}, {gradient} of {every}"}


def _figure(data: pl.DataFrame, names: list[str]) -> Figure:
    shades = iter(matplotlib.colormaps["viridis"](np.linspace(0.25, 0.95, max(1, len(names) - 4))))
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
