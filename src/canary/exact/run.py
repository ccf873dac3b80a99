"""`canary frontier`: the best return under each constraint, and the gaps of trained policies.

All results are exact, even for trained networks: in a finite environment a policy is a table, and
dynamic programming gives the law of the episode cost.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from canary.config.config import RunConfig
from canary.constraints import Chance, one_cost
from canary.environments.protocol import Environment, settings_of
from canary.errors import CanaryError
from canary.exact import (
    CONSTRAINTS,
    CostLaw,
    FiniteMDP,
    Infeasible,
    best_response,
    best_under_cantelli,
    best_under_var,
    cost_law,
    from_environment,
)
from canary.networks import Categorical, Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import CostAccount, policy_inputs
from canary.runs.environment import open_config
from canary.runs.policies import load_policies

Progress = Callable[[int, int, str], None]
"""Called before each piece of work with (pieces done, pieces in all, name of the next)."""

DEAD_ZONES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8)
NUMBERS = ("return", "upper_bound", "violation_probability", "cost_mean", "cost_deviation")
SMALLEST_EPSILON = 1e-9  # in double precision, smaller ones are worst-case constraints


def frontier_report(
    environment: Environment,
    limit: float,
    epsilon: float,
    *,
    epsilons: Sequence[float] | None = None,
    runs: Sequence[Path] = (),
    progress: Progress = lambda done, total, what: None,
) -> dict[str, Any]:
    """The optima at `epsilon`, the frontier over many epsilons, and the seeds of `runs`, as JSON
    data."""
    mdp = from_environment(environment)
    configs = [_comparable(run, environment, limit) for run in runs]
    others = default_epsilons(epsilon) if epsilons is None else epsilons
    problems: list[tuple[dict[str, Any], Any]] = [
        ({"constraint": name, "epsilon": Chance(limit=limit, epsilon=each).epsilon}, solve)
        for name, solve in CONSTRAINTS.items()
        for each in sorted({*others, epsilon})
    ]
    for zone in DEAD_ZONES:
        names = {"constraint": "shaped", "epsilon": epsilon, "dead_zone": zone}
        problems.append((names, partial(best_under_cantelli, dead_zone=zone)))
    pool: list[Any] = []  # policies of one problem help to solve the next
    points, trained, total = [], [], len(problems) + len(runs)
    for names, solve in problems:
        label = ", ".join(f"{name} {value}" for name, value in names.items())
        progress(len(points), total, label)
        point: dict[str, Any] = names | dict.fromkeys(NUMBERS)
        with suppress(Infeasible):  # all numbers stay None
            best = solve(mdp, limit, names["epsilon"], pool)
            point |= {"return": float(best.value), "upper_bound": float(best.upper_bound)}
            point |= _numbers(best.law, limit)
        points.append(point)
    curves = [point for point in points if point["constraint"] != "shaped"]
    shaped = [point for point in points if point["constraint"] == "shaped"]
    optima = {point["constraint"]: point for point in curves if point["epsilon"] == epsilon}
    for run, config in zip(runs, configs, strict=True):
        progress(len(points) + len(trained), total, f"the policies of {run.name}")
        trained.append(_trained(run, config, mdp, limit, optima, pool))
    return {
        "env": type(environment).__name__,
        "settings": settings_of(environment),
        "limit": limit,
        "epsilon": epsilon,
        "unconstrained_return": best_response(mdp, np.zeros_like(mdp.support))[0],
        **{f"{name}_optimal_return": optima[name]["return"] for name in CONSTRAINTS},
        "shaped_optimal_return": {str(point["dead_zone"]): point["return"] for point in shaped},
        "optima": optima,
        "frontier": curves,
        "shaped": shaped,
        "runs": trained,
    }


def default_epsilons(epsilon: float) -> list[float]:
    """1, 2, 5, 10, ... up to 0.5, from a power of ten at or below 0.001 and a tenth of `epsilon`."""
    first = int(np.floor(np.log10(min(1e-3, epsilon / 10))))
    return [float(f"{digit}e{decade}") for decade in range(first, 0) for digit in (1, 2, 5)]


def grid_inputs(
    environment: Environment,
    mdp: FiniteMDP,
    account: CostAccount,
    statistics: RunningStatistics | None,
    time: ArrayLike = 0,
) -> Float[Array, "case input"]:
    """The inputs x = (s, p, y) of a policy in every state with every spent cost, states first. s is
    one-hot, and p is the pace at a time (1 without a clock)."""
    states, spent = np.meshgrid(np.arange(mdp.states), mdp.support, indexing="ij")
    observation = jnp.eye(environment.observation_size)[states.ravel()]
    spent_raw = jnp.asarray(spent.ravel(), jnp.float32)
    pace = jnp.full(states.size, account.pace(time, 1.0), jnp.float32)
    return policy_inputs(observation, spent_raw, pace, account, statistics)


def policy_law(
    environment: Environment,
    mdp: FiniteMDP,
    account: CostAccount,
    policy: Policy,
    statistics: RunningStatistics | None = None,
) -> CostLaw:
    """The exact law of the episode cost under a network that samples actions, as in training."""

    def chances(time: ArrayLike) -> Float[Array, "case action"]:
        distribution = policy(grid_inputs(environment, mdp, account, statistics, time))
        assert isinstance(distribution, Categorical)  # finite processes have finitely many actions
        return jax.nn.softmax(distribution.logits)

    if account.clock is None:
        table, times = chances(0), ()
    else:
        table, times = jax.lax.map(chances, jnp.arange(mdp.horizon)), (mdp.horizon,)
    shape = *times, mdp.states, len(mdp.support), mdp.actions
    return cost_law(mdp, np.asarray(table, float).reshape(shape))


def _numbers(law: CostLaw, limit: float) -> dict[str, float]:
    """Numbers of a law, in raw units."""
    return {
        "violation_probability": law.violation(limit),
        "cost_mean": law.mean,
        "cost_deviation": law.variance**0.5,
    }


def _comparable(run: Path, environment: Environment, limit: float) -> RunConfig:
    """The configuration of a run; raises if its policies cannot be compared with this frontier."""
    config = open_config(run)
    constraint = one_cost(config.constraint, "A frontier")
    discount = config.algorithm.estimation.cost_discount
    reasons = {
        f"on {config.environment_name} with {settings_of(config.environment)}; ask for the frontier "
        "of the run's own environment": config.environment != environment,
        f"under {constraint.text}; a frontier is of tail constraints": constraint.kind == "mean",
        f"with the limit {constraint.limit:g}, not {limit:g}": constraint.limit != limit,
        f"with the cost discount {discount:g}; exact laws are of the undiscounted cost": discount
        != 1,
    }
    for reason, applies in reasons.items():
        if applies:
            raise CanaryError(f"{run} was trained {reason}.")
    return config


def _trained(
    run: Path,
    config: RunConfig,
    mdp: FiniteMDP,
    limit: float,
    optima: dict[str, Any],
    pool: list[Any],
) -> dict[str, Any]:
    """The exact values of a run's policies, and their gaps to the optima."""
    policies = load_policies(config, run)
    dead_zone = getattr(config.algorithm, "dead_zone", None)
    best = {name: point["return"] for name, point in optima.items()}
    seeds = []
    for seed in config.training.seeds:
        law = policy_law(config.environment, mdp, policies.account, *policies.of_seed(seed))
        value, numbers = law.expected_return, _numbers(law, limit)
        # An epsilon at which the policy is safe
        own = min(max(numbers["violation_probability"] * (1 + 1e-9), SMALLEST_EPSILON), 1.0)
        bound = None if dead_zone is None else law.guaranteed_violation(limit, dead_zone)
        seeds.append(
            {
                "seed": seed,
                "return": value,
                **numbers,
                **{f"gap_to_{n}": None if b is None else b - value for n, b in best.items()},
                "gap_at_own_violation": best_under_var(mdp, limit, own, pool).value - value,
                "dead_zone": dead_zone,
                "shaped_bound": bound,
            }
        )
    return {
        "run_dir": str(run),
        "algorithm": config.algorithm_name,
        "updates": policies.iteration,
        "seeds": seeds,
    }
