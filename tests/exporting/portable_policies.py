"""Policies of every kind that can be exported, with weights that no training made."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from canary.environments.protocol import ActionSpace, Continuous, Discrete
from canary.exporting.trained_policy import TrainedPolicy
from canary.identity import RiskCritics
from canary.networks import make_critics, make_policy
from canary.numerics.running_statistics import initial_statistics, merge
from canary.rollout import CostAccount

OBSERVATIONS, HORIZON = 5, 20
ABOUT = {"epsilon": 0.02, "algorithm": "canary", "seed": 3, "updates": 40}


@dataclass(frozen=True)
class Probe:
    """What a policy's identity asks of an environment."""

    action_space: ActionSpace
    slip: float = 0.25
    horizon: int = HORIZON
    observation_size: int = OBSERVATIONS
    name: str = "Probe"
    policy_interface: Any = None

    def settings(self) -> dict[str, Any]:
        return {"slip": self.slip}


@cache  # drawing orthogonal weights compiles a program per shape
def make_portable(
    *,
    continuous: bool = False,
    normalised: bool = False,
    blind: bool = False,
    discount: float = 1.0,
    clock: bool = False,
    budgets: int = 0,
) -> TrainedPolicy:
    """`blind` policies do not see the account: their first layer has no rows for it."""
    space = Continuous(3) if continuous else Discrete(4)
    size = OBSERVATIONS + (0 if blind else CostAccount.SIZE)
    policy = make_policy(jax.random.key(1), size, space, (16, 12), budgets=budgets)
    # Weights as after training: a sharp head, biases, deviations on both sides of the floor.
    noise = jax.random.normal(jax.random.key(2), (64,))
    network = replace(
        policy.network,
        weights=(*policy.network.weights[:-1], 100 * policy.network.weights[-1]),
        biases=tuple(noise[: bias.size] for bias in policy.network.biases),
    )
    policy = replace(policy, network=network)
    if continuous:
        policy = replace(policy, log_std=jnp.array([-0.5, -7.0, 0.3]))
    statistics = None
    if normalised:
        seen = 3.0 + jnp.array([0.1, 1, 10, 100, 0]) * jax.random.normal(
            jax.random.key(4), (200, OBSERVATIONS)
        )
        statistics = merge(initial_statistics(OBSERVATIONS), seen)
    environment: Any = Probe(space)
    account = CostAccount(2.5, discount, HORIZON if clock else None)
    return TrainedPolicy(policy, statistics, account, environment, about=ABOUT)


@cache
def make_risk_critics(count: int, budgets: int):
    size = OBSERVATIONS + CostAccount.SIZE
    return make_critics(jax.random.key(6), count, size, (16, 12), budgets)


def with_critics(portable: TrainedPolicy, *, dead_zone: float | None = None) -> TrainedPolicy:
    """V and V~ or, with a dead zone, V_X alone."""
    networks = make_risk_critics(2 if dead_zone is None else 1, portable.policy.network.budgets)
    return replace(portable, critics=RiskCritics(networks, dead_zone))


KINDS = {
    "discrete": {},
    "continuous": {"continuous": True},
    "normalised continuous": {"continuous": True, "normalised": True},
    "blind to its account": {"blind": True},
    "discounted": {"discount": 0.9},
    "with a clock and a budget layer": {"clock": True, "budgets": 1},
}
