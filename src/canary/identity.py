"""One digest of everything that determines a policy's behaviour, for runs, certificates, exports
and episode handles.

Weights are not enough. The limit scales the spent cost that the policy sees, the normaliser and its
clip scale the observation, critics estimate the risk, and a policy is certified for one environment
with one handling of actions. So the digest covers all arrays (name, type, shape, bytes) and all
facts (JSON, sorted keys). Two policies with the same digest act alike.
"""

import dataclasses
import json
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from canary.environments.protocol import (
    Discrete,
    Environment,
    name_of_environment,
    settings_of,
)
from canary.errors import CanaryError
from canary.exporting import numpy_policy
from canary.networks import LOG_STD_FLOOR, MLP, SPENT_SCALE, Policy
from canary.numerics.running_statistics import CLIP, FLOOR, RunningStatistics, sane
from canary.rollout import SPENT_CLIP, CostAccount

VERSION = 1
NORMALISER = {"clip": CLIP, "floor": FLOOR}


@dataclasses.dataclass(frozen=True)
class Identity:
    """A policy as plain facts and arrays by name."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def sha256(self) -> str:
        return numpy_policy.digest(self.facts, self.arrays)


@dataclasses.dataclass(frozen=True)
class RiskCritics:
    """The critics that estimate a bound on P(C > limit | x) (`NumpyPolicy.risk`)."""

    networks: MLP
    """V_X of the remaining shaped cost, or V and V~ of the cost and its square; stacked."""
    dead_zone: float | None
    """Dead zone of the shaped cost; None for V and V~."""


def identify(
    policy: Policy,
    statistics: RunningStatistics | None,
    account: CostAccount,
    environment: Environment,
    critics: RiskCritics | None = None,
) -> Identity:
    """Everything that determines the behaviour of a policy."""
    arrays = named("policy", policy) | named("statistics", statistics)
    if critics is not None:
        arrays |= named("critics", critics.networks)
    space, interface = environment.action_space, getattr(environment, "policy_interface", None)
    if isinstance(space, Discrete):
        actions: dict[str, Any] = {"kind": "discrete", "count": space.count}
    else:  # the environment clips, after noise if it has any
        clips = "environment" if interface is None else "interface"
        actions = {"kind": "continuous", "size": space.size, "low": -1.0, "high": 1.0}
        actions["clipped_by"] = clips
    facts = {
        "identity": VERSION,
        "environment": {
            "name": name_of_environment(environment),
            "settings": settings_of(environment),
        },
        "horizon": environment.horizon,
        "observation_size": environment.observation_size,
        "actions": actions,
        "limit": np.asarray(account.limit, float).tolist(),
        "cost_discount": float(account.cost_discount),
        "clock": account.clock,
        "spent_clip": SPENT_CLIP,
        "log_std_floor": LOG_STD_FLOOR,
        "normaliser": None if statistics is None else NORMALISER,
        "layers": len(policy.network.weights),
        "budgets": policy.network.budgets,
        "spent_scale": SPENT_SCALE,
        "critics": critics and {"dead_zone": critics.dead_zone},
    }
    if interface is not None:  # so that digests of other policies do not change
        facts["interface"] = interface
    return Identity(json.loads(json.dumps(facts, allow_nan=False)), arrays)


def refuse_nonfinite(identity: Identity, seed: int | None = None) -> None:
    """Refuse a policy with a weight or statistic that is not finite."""
    for name, array in identity.arrays.items():
        # A sum of squares over millions of observations may be large.
        good = np.isfinite(array) if name.startswith("statistics") else sane(array)
        if not good.all():
            whose = "The policy" if seed is None else f"The policy of seed {seed}"
            raise CanaryError(
                f"{whose} has numbers that are not finite, or absurdly large ({name}): it cannot be "
                "evaluated, certified or exported; train it again."
            )


def named(prefix: str, tree: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a tree by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
