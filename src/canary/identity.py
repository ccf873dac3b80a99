"""One digest of everything that determines how a policy behaves: the same in a run, a certificate,
an export and an episode handle.

Weights are not enough. The limit scales the spent cost that the policy sees, the normaliser and its
clip scale the rest, critics estimate the risk, and a policy is certified for one environment with
one handling of actions. So the digest covers all arrays (name, type, shape, bytes) and all facts
(JSON, sorted keys), and two policies with the same digest act alike. `export/numpy_policy.py`
computes it with numpy alone.
"""

import dataclasses
import hashlib
import json
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from canary.algorithms.remaining_risk import RiskCritics
from canary.environments.protocol import (
    ActionSpace,
    Continuous,
    Discrete,
    Environment,
    name_of_environment,
    policy_interface,
    settings_of,
)
from canary.errors import CanaryError
from canary.networks import LOG_STD_FLOOR, Policy
from canary.numerics.running_statistics import CLIP, FLOOR, RunningStatistics, sane
from canary.rollout import SPENT_CLIP, CostAccount

VERSION = 1
NORMALISER = {"clip": CLIP, "floor": FLOOR}


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a policy is: plain facts, and arrays by name."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def sha256(self) -> str:
        return digest(self.facts, self.arrays)


@dataclasses.dataclass(frozen=True)
class Place:
    """The environment that a policy was trained in, as plain data."""

    name: str
    settings: dict[str, Any]
    horizon: int
    observation_size: int
    action_space: ActionSpace
    interface: dict[str, Any] | None = None
    """How the policy's actions and inputs follow from the environment's; None if they are equal."""


def place_of(environment: Environment, name: str | None = None) -> Place:
    """An environment as plain data, by default with its own name."""
    return Place(
        name or name_of_environment(environment),
        settings_of(environment),
        environment.horizon,
        environment.observation_size,
        environment.action_space,
        policy_interface(environment),
    )


def identify(
    policy: Policy,
    statistics: RunningStatistics | None,
    account: CostAccount,
    place: Place,
    critics: RiskCritics | None = None,
) -> Identity:
    """All that determines the behaviour of a policy."""
    arrays = named("policy", policy) | named("statistics", statistics)
    if critics is not None:
        arrays |= named("critics", critics.networks)
    facts = {
        "identity": VERSION,
        "environment": {"name": place.name, "settings": place.settings},
        "horizon": place.horizon,
        "observation_size": place.observation_size,
        "actions": describe_actions(place),
        "limit": np.asarray(account.limit, float).tolist(),
        "cost_discount": float(account.cost_discount),
        "clock": account.clock,
        "spent_clip": SPENT_CLIP,
        "log_std_floor": LOG_STD_FLOOR,
        "normaliser": None if statistics is None else NORMALISER,
        "layers": len(policy.network.weights),
        "critics": critics and {"dead_zone": critics.dead_zone},
    }
    if place.interface is not None:  # digests of all other policies stay what they were
        facts["interface"] = place.interface
    return Identity(json.loads(json.dumps(facts, allow_nan=False)), arrays)


def digest(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of the facts as JSON, then of every array in the order of their names."""
    result = hashlib.sha256()
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    result.update(f"{text}\n".encode())
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        array = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
        result.update(f"{name} {array.dtype.name} {np.shape(arrays[name])}\n".encode())
        result.update(array.tobytes())
    return result.hexdigest()


def describe_actions(place: Place) -> dict[str, Any]:
    """The actions that a policy chooses. The environment clips continuous ones, after its own noise
    if it has any; or the interface does, where it scales them to the environment's bounds."""
    match place.action_space:
        case Discrete(count):
            return {"kind": "discrete", "count": count}
        case Continuous(size):
            return {
                "kind": "continuous",
                "size": size,
                "low": -1.0,
                "high": 1.0,
                "clipped_by": "environment" if place.interface is None else "interface",
            }
    raise CanaryError(f"An action space is Discrete or Continuous, not {place.action_space!r}.")


def refuse_nonfinite(identity: Identity, seed: int | None = None) -> None:
    """Refuse a policy with a weight or statistic that is not finite: it could do anything."""
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
    """The arrays of a tree by their place in it."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
