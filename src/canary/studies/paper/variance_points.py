"""The points of `canary reproduce relative-variance`: the noise of constraint estimates, exact and
with critics.

One policy of IcyLake; the limit moves, and epsilon is twice the violation probability there
(ass:slack). `monte-carlo`: the theory's unbiased estimators, exact by dynamic programming. `gae`: the
algorithms' own estimators with fitted critics (`estimators`). Points are stored one by one, so an
interrupted study continues.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from canary.environments.icy_lake import IcyLake
from canary.exact import cost_law, from_environment
from canary.runs.manifest import code_fingerprint
from canary.studies.store import read_sealed, write_sealed
from canary.theory import (
    cantelli,
    cvar,
    indicator,
    of_gradient,
    of_value,
    scored_law,
    with_violation,
)

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
    "priced": ("priced", 0.6),
}
Point = dict[str, Any]
Compute = Callable[[Point], Point]


def key_of(point: Point) -> str:
    return f"{point['estimator']}/{point['constraint']}/{point['limit']:g}/{point['seed']}"


def complete(
    folder: Path,
    seeds: tuple[int, ...],
    only: tuple[str, ...] = (),
    progress: Callable[[int, int, str], None] | None = None,
) -> None:
    """Compute the points that are missing in points.json."""
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
        if progress is not None:
            progress(done, len(todo), key_of(point))
        known.append(point | {"code": code} | makers[point["estimator"]](point))
        write_sealed(path, {"points": sorted(known, key=key_of)})


def _planned(
    epsilons: dict[float, float], seeds: tuple[int, ...], only: tuple[str, ...]
) -> Iterator[Point]:
    for constraint in only or PARTS:
        for limit, epsilon in epsilons.items():
            point = {"constraint": constraint, "limit": limit, "epsilon": epsilon}
            if constraint != "priced":  # it is made of critics
                yield point | {"estimator": "monte-carlo", "seed": None}
            if limit in GAE_LIMITS:
                yield from (point | {"estimator": "gae", "seed": seed} for seed in seeds)


def _exact_points(lake: Any, policy: np.ndarray) -> Compute:
    law = scored_law(lake, policy)

    def compute(point: Point) -> Point:
        name, dead_zone = PARTS[point["constraint"]]
        limit, epsilon = point["limit"], point["epsilon"]
        if name == "cantelli":
            constraint = cantelli(law, limit, epsilon, dead_zone)
        else:
            constraint = {"indicator": indicator, "cvar": cvar}[name](law, limit, epsilon)
        value, gradient = of_value(constraint, law), of_gradient(constraint, law)
        return {
            "value": value.of_batch(EPISODES),
            "gradient": gradient.of_batch(EPISODES),
            "active": value.active,
        }

    return compute


def _measured_points(policy: np.ndarray) -> Compute:
    import jax

    from canary.studies.paper import estimators

    programs: dict[str, estimators.Batches] = {}
    networks: dict[int, Any] = {}

    def compute(point: Point) -> Point:
        constraint, seed = point["constraint"], point["seed"]
        if constraint not in programs:
            made = estimators.estimator(*PARTS[constraint], IcyLake())
            programs[constraint] = estimators.Batches(made, IcyLake())
        if seed not in networks:
            networks[seed] = estimators.imitate(policy, jax.random.key(seed))
        found = programs[constraint](networks[seed], point["limit"], point["epsilon"], seed)
        episodes = float(found["episodes"].mean())
        kappa = {
            "value": estimators.relative_variance(found["value"][:, None]),
            "gradient": estimators.relative_variance(found["gradient"]),
        }
        known = {name: k * episodes / EPISODES for name, k in kappa.items()}
        return {name: k if math.isfinite(k) else None for name, k in known.items()} | {
            "episodes": episodes
        }

    return compute
