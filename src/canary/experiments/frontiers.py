"""`canary frontier`: the best return any policy can have under each constraint, and how far trained ones are.

Everything here is exact, also for trained networks: in a finite environment a policy on x = (s, g, y) is a
table over (state, spent cost), and the law of the episode cost follows by dynamic programming
(`canary.exact`).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from canary.certification.certify import environment_settings
from canary.environments.icy_lake import IcyLake
from canary.environments.protocol import Environment, EnvironmentState
from canary.errors import CanaryError
from canary.exact import CONSTRAINTS, CostLaw, FiniteMDP, Infeasible, best_response, cost_law, from_icy_lake
from canary.experiments import storage
from canary.experiments.config import RunConfig, config_from_dict
from canary.experiments.frozen import load_policies
from canary.networks import Categorical, Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import Augmentation, Lane, see
from canary.types import Chance

Progress = Callable[[int, int, str], None]
"""Called before each piece of work with the pieces done, their number, and the name of the next."""

SMALLEST_EPSILON = 1e-9  # below this a chance constraint is a worst-case constraint in double precision


def frontier_report(
    environment: Environment,
    limit: float,
    epsilon: float,
    *,
    epsilons: Sequence[float] | None = None,
    runs: Sequence[Path] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The optima at `epsilon`, the frontier over many epsilons, and the seeds of `runs`, as JSON data."""
    constraint = Chance(limit=limit, epsilon=epsilon)
    mdp = finite_process(environment)
    configs = [_comparable(run, environment, limit) for run in runs]
    grid = sorted({*(default_epsilons(epsilon) if epsilons is None else epsilons), epsilon})
    for value in grid:
        Chance(limit=limit, epsilon=value)
    work = [(name, value) for name in CONSTRAINTS for value in grid]
    total = len(work) + sum(len(config.training.seeds) for config in configs)
    report = progress or (lambda done, total, label: None)
    pool: list[Any] = []  # policies that one problem has found help to solve the next
    points = []
    for done, (name, value) in enumerate(work):
        report(done, total, f"{name} at epsilon {value:g}")
        points.append(_point(mdp, name, (limit, value), pool))
    optima = {point["constraint"]: point for point in points if point["epsilon"] == epsilon}
    done, trained = len(work), []
    for run, config in zip(runs, configs, strict=True):
        report(done, total, f"the policies of {run.name}")
        trained.append(_trained(run, config, mdp, constraint, (optima, pool)))
        done += len(config.training.seeds)
    report(total, total, "")
    return {
        "env": type(environment).__name__,
        "settings": environment_settings(environment),
        "limit": limit,
        "epsilon": epsilon,
        "unconstrained_return": best_response(mdp, np.zeros_like(mdp.support))[0],
        **{f"{name}_optimal_return": optima[name]["return"] for name in CONSTRAINTS},
        "optima": optima,
        "frontier": points,
        "runs": trained,
    }


def default_epsilons(epsilon: float) -> list[float]:
    """1, 2, 5, 10, ... up to 0.5, from the power of ten that is at most 0.001 and a tenth of `epsilon`."""
    first = int(np.floor(np.log10(min(1e-3, epsilon / 10))))
    return [float(f"{digit}e{decade}") for decade in range(first, 0) for digit in (1, 2, 5)]


def finite_process(environment: Environment) -> FiniteMDP:
    """The environment as tables, or a sentence if it is not finite."""
    if isinstance(environment, IcyLake):
        return from_icy_lake(environment)
    raise CanaryError(
        f"{type(environment).__name__} has no finite table of states and costs, so its best returns cannot "
        f"be computed exactly; the frontier is for IcyLake, `canary certify` is for any environment."
    )


def grid_inputs(
    environment: Environment, mdp: FiniteMDP, limit: float, statistics: RunningStatistics | None
) -> Float[Array, "case input"]:
    """What a policy sees in every state with every spent cost, states first: rows x = (s, 1, y)."""
    states, spent = np.meshgrid(np.arange(mdp.states), mdp.support, indexing="ij")
    observation = jnp.eye(environment.observation_size)[states.ravel()]  # IcyLake shows the tile it is on
    zero, no = jnp.zeros(states.size), jnp.zeros(states.size, bool)
    count = jnp.zeros(states.size, jnp.int32)
    state = EnvironmentState(None, observation, zero, zero, no, no, count)
    lanes = Lane(state, jnp.asarray(spent.ravel(), jnp.float32), zero + 1, zero, count, ~no)
    return see(lanes, Augmentation(limit, 1.0), statistics)


def policy_law(
    environment: Environment,
    mdp: FiniteMDP,
    limit: float,
    policy: Policy,
    statistics: RunningStatistics | None = None,
) -> CostLaw:
    """The exact law of the episode cost under a network that samples its actions, as in training."""
    distribution = policy(grid_inputs(environment, mdp, limit, statistics))
    assert isinstance(distribution, Categorical)  # a finite process has finitely many actions
    chance = np.asarray(jax.nn.softmax(distribution.logits), float)
    return cost_law(mdp, chance.reshape(mdp.states, len(mdp.support), mdp.actions))


def _point(mdp: FiniteMDP, name: str, setting: tuple[float, float], pool: list[Any]) -> dict[str, Any]:
    """One constraint at one epsilon; all numbers are None where no policy satisfies it."""
    limit, epsilon = setting
    head = {"constraint": name, "epsilon": epsilon}
    try:
        optimum = CONSTRAINTS[name](mdp, limit, epsilon, pool)
    except Infeasible:
        names = ("return", "upper_bound", *_numbers(None, Chance(limit=limit, epsilon=epsilon)))
        return head | dict.fromkeys(names)
    numbers = _numbers(optimum.law, Chance(limit=limit, epsilon=epsilon))
    return head | {"return": float(optimum.value), "upper_bound": float(optimum.upper_bound)} | numbers


def _numbers(law: CostLaw | None, constraint: Chance) -> dict[str, float | None]:
    """P, the moments of the cost, B and CVaR; raw units."""
    names = ("violation_probability", "cost_mean", "cost_deviation", "cantelli_value", "cvar")
    if law is None:
        return dict.fromkeys(names)
    limit, epsilon = constraint.limit, constraint.epsilon
    values = (
        law.violation(limit),
        law.mean,
        law.variance**0.5,
        law.cantelli(limit, epsilon),
        law.conditional_value_at_risk(epsilon),
    )
    return dict(zip(names, values, strict=True))


def _comparable(run: Path, environment: Environment, limit: float) -> RunConfig:
    """The configuration of a run, if its policies can be put on this frontier."""
    config = config_from_dict(storage.read_json(run / "config.json"))
    if config.environment != environment:
        raise CanaryError(
            f"{run} was trained on {config.environment_name} with the settings "
            f"{environment_settings(config.environment)}, not on this {type(environment).__name__} with "
            f"{environment_settings(environment)}; ask for the frontier of the run's own environment."
        )
    if config.constraint.limit != limit:
        raise CanaryError(
            f"{run} was trained with the limit {config.constraint.limit:g}, not {limit:g}; "
            f"ask for the frontier of that limit."
        )
    if config.algorithm.estimation.cost_discount != 1:
        raise CanaryError(
            f"{run} was trained with the cost discount {config.algorithm.estimation.cost_discount:g}; exact "
            f"laws are those of the undiscounted cost, so only runs with algo.cost_discount=1 compare."
        )
    return config


def _trained(
    run: Path, config: RunConfig, mdp: FiniteMDP, constraint: Chance, known: tuple[dict[str, Any], list[Any]]
) -> dict[str, Any]:
    policies = load_policies(config, run)
    optima, pool = known
    seeds = []
    for seed in config.training.seeds:
        policy, statistics = policies.of_seed(seed)
        law = policy_law(config.environment, mdp, constraint.limit, policy, statistics)
        numbers = _numbers(law, constraint)
        own = _point(mdp, "var", (constraint.limit, _as_epsilon(law.violation(constraint.limit))), pool)
        gaps = {
            f"gap_to_{name}": None if point["return"] is None else point["return"] - law.expected_return
            for name, point in optima.items()
        }
        seeds.append(
            {"seed": seed, "return": law.expected_return, "length": law.expected_length, **numbers}
            | {"is_safe": law.violation(constraint.limit) <= constraint.epsilon}
            | gaps
            | {"gap_at_own_violation": own["return"] - law.expected_return}
        )
    return {
        "run_dir": str(run),
        "algorithm": config.algorithm_name,
        "preset": config.preset,
        "epsilon": config.constraint.epsilon,
        "updates": policies.iteration,
        "seeds": seeds,
        "notes": policies.notes,
    }


def _as_epsilon(probability: float) -> float:
    """A violation probability as an epsilon that allows it and lies strictly between 0 and 1."""
    return min(max(probability * (1 + 1e-9), SMALLEST_EPSILON), 1 - SMALLEST_EPSILON)
