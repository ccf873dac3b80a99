"""`canary reproduce relative-variance`: the noise of constraint estimates against epsilon, exactly
and with critics.

One policy of IcyLake; the limit moves, and epsilon is twice the violation probability there, so p =
epsilon / 2 throughout (ass:slack). `monte-carlo`: the theory's unbiased estimators, exact by
dynamic programming. `gae`: the estimators of the algorithms, with fitted critics
(`studies.estimators`). Points are stored one by one, so an interrupted study goes on.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from canary.environments.icy_lake import IcyLake
from canary.exact import cost_law, from_environment
from canary.runs import directory
from canary.runs.manifest import code_fingerprint
from canary.studies.checks import read_points
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
LIMITS = tuple(np.arange(2.5, 13))
GAE_LIMITS = (3.5, 4.5, 5.5, 6.5, 7.5)
CONSTRAINTS: dict[str, tuple[str, float | None]] = {
    "indicator": ("indicator", None),
    "cvar": ("cvar", None),
    "cantelli": ("cantelli", None),
    **{f"shaped-{d:g}": ("cantelli", d) for d in (0.0, 0.3, 0.6, 0.9)},
}
Progress = Callable[[int, int, str], None]


def key_of(point: dict[str, Any]) -> str:
    return f"{point['estimator']}/{point['constraint']}/{point['limit']:g}/{point['seed']}"


def complete(
    results: Path,
    seeds: tuple[int, ...],
    only: tuple[str, ...] = (),
    progress: Progress | None = None,
) -> None:
    """Compute the points that are missing in results/points.json."""
    path = results / "points.json"
    known = read_points(path)
    have = {key_of(point) for point in known}
    lake = from_environment(IcyLake())
    policy = with_violation(lake, 5.5, VIOLATION)
    exact = cost_law(lake, policy)
    epsilons = {float(limit): 2 * exact.violation(limit) for limit in LIMITS}
    todo = [point for point in _planned(epsilons, seeds, only) if key_of(point) not in have]
    makers = {"monte-carlo": _exact_points(lake, policy), "gae": _measured_points(policy)}
    code = code_fingerprint()
    for done, point in enumerate(todo):
        if progress is not None:
            progress(done, len(todo), key_of(point))
        point |= {"code": code, **makers[point["estimator"]](point)}
        known = [*known, point]
        directory.write_json(path, {"points": sorted(known, key=key_of)})


def _planned(
    epsilons: dict[float, float], seeds: tuple[int, ...], only: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    for constraint in CONSTRAINTS:
        if only and constraint not in only:
            continue
        for limit, epsilon in epsilons.items():
            point = {"constraint": constraint, "limit": limit, "epsilon": epsilon}
            yield point | {"estimator": "monte-carlo", "seed": None}
            if limit in GAE_LIMITS:
                yield from (point | {"estimator": "gae", "seed": seed} for seed in seeds)


def _exact_points(lake: Any, policy: np.ndarray) -> Callable[[dict[str, Any]], dict[str, Any]]:
    law = scored_law(lake, policy)

    def compute(point: dict[str, Any]) -> dict[str, Any]:
        name, dead_zone = CONSTRAINTS[point["constraint"]]
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


def _measured_points(policy: np.ndarray) -> Callable[[dict[str, Any]], dict[str, Any]]:
    import jax

    from canary.studies import estimators

    programs: dict[str, estimators.Batches] = {}
    networks: dict[int, Any] = {}

    def compute(point: dict[str, Any]) -> dict[str, Any]:
        constraint, seed = point["constraint"], point["seed"]
        if constraint not in programs:
            programs[constraint] = estimators.Batches(
                estimators.estimator(*CONSTRAINTS[constraint]), IcyLake()
            )
        if seed not in networks:
            networks[seed] = estimators.imitate(policy, jax.random.key(seed))
        found = programs[constraint](networks[seed], point["limit"], point["epsilon"], seed)
        episodes = float(found["episodes"].mean())
        scale = episodes / EPISODES
        return {
            "value": _known(scale * estimators.relative_variance(found["value"][:, None])),
            "gradient": _known(scale * estimators.relative_variance(found["gradient"])),
            "episodes": episodes,
        }

    return compute


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
