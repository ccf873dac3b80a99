"""A frozen policy with all it needs to act elsewhere, and the test that another implementation acts the same.

All formats take an observation s, the cost discount g and the spent cost y in raw units, and give the
parameters of the action distribution; the normaliser, the division by the limit and the clips are part of
the artefact.
"""

import importlib.metadata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from canary.algorithms.remaining_risk import RiskCritics
from canary.certification.certify import policy_hash
from canary.environments.protocol import ActionSpace, Continuous, Discrete, EnvironmentState
from canary.errors import CanaryError
from canary.networks import LOG_STD_FLOOR, Categorical, Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import SPENT_CLIP, Augmentation, Lane, see

FORMAT = 1
TOLERANCE = 1e-5
CHECKED_INPUTS = 512
NORMALISER = {
    "clip": 10.0,
    "floor": 1e-8,
}  # of `running_statistics.normalise`; the parity check would notice a change

Outputs = dict[str, np.ndarray]
Run = Callable[[np.ndarray, np.ndarray, np.ndarray], Outputs]
"""An implementation: observation [case, obs], discount [case], spent [case] to outputs [case, action]."""


@dataclass(frozen=True)
class PortablePolicy:
    """What is exported; `about` is plain data that describes where it comes from."""

    policy: Policy
    statistics: RunningStatistics | None
    augmentation: Augmentation
    observation_size: int
    action_space: ActionSpace
    about: dict[str, Any]
    """At least environment, algorithm, epsilon, horizon, seed and updates."""
    critics: RiskCritics | None = None


@dataclass(frozen=True)
class Parity:
    """How far another implementation is from JAX on random inputs."""

    inputs: int
    distribution: float
    """Largest difference of probabilities or, relative to max(1, |value|), means and log deviations."""
    outputs: float
    """Largest difference of the networks' raw outputs; float32 cannot do better than 1e-6 of their size."""


def metadata(portable: PortablePolicy) -> dict[str, Any]:
    """Everything but the numbers of the networks, as JSON data."""
    match portable.action_space:
        case Discrete(count):
            actions = {"kind": "discrete", "count": count}
        case Continuous(size):
            actions = {"kind": "continuous", "size": size, "low": -1.0, "high": 1.0}
    critics = portable.critics
    return portable.about | {
        "format": FORMAT,
        "inputs": ["observation", "discount", "spent"],
        "outputs": output_names(portable),
        "observation_size": portable.observation_size,
        "actions": actions,
        "limit": portable.augmentation.limit,
        "cost_discount": portable.augmentation.discount,
        "spent_clip": SPENT_CLIP,
        "log_std_floor": LOG_STD_FLOOR,
        "normaliser": None if portable.statistics is None else NORMALISER,
        "layers": len(portable.policy.network.weights),
        "arrays": list(hashed_arrays(portable)),
        "critics": critics and {"structured": critics.structured, "time_feature": critics.time_feature},
        "policy_sha256": policy_hash(portable.policy, portable.statistics),
        "versions": _versions(),
    }


def output_names(portable: PortablePolicy) -> list[str]:
    return ["logits"] if isinstance(portable.action_space, Discrete) else ["mean", "log_std"]


def hashed_arrays(portable: PortablePolicy) -> dict[str, np.ndarray]:
    """The arrays of the policy and its normaliser, in the order and under the names of the policy's hash."""
    return _named("policy", portable.policy) | _named("statistics", portable.statistics)


def critic_arrays(portable: PortablePolicy) -> dict[str, np.ndarray]:
    return {} if portable.critics is None else _named("critics", portable.critics.networks)


def respond(
    portable: PortablePolicy,
    observation: Float[Array, "case obs"],
    discount: Float[Array, "case"],
    spent: Float[Array, "case"],
) -> dict[str, Float[Array, "case action"]]:
    """What the policy in JAX makes of these inputs: the truth that all formats are held to."""
    zero, no = jnp.zeros_like(spent), jnp.zeros_like(spent, bool)
    count = jnp.zeros_like(spent, jnp.int32)
    lanes = Lane(
        EnvironmentState(None, observation, zero, zero, no, no, count), spent, discount, zero, count, ~no
    )
    distribution = portable.policy(see(lanes, portable.augmentation, portable.statistics))
    if isinstance(distribution, Categorical):
        return {"logits": distribution.logits}
    return {"mean": distribution.mean, "log_std": distribution.log_std}


def random_inputs(
    portable: PortablePolicy, count: int = CHECKED_INPUTS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations as the normaliser knows them (else standard normal); accounts that pass all clips."""
    random = np.random.default_rng(seed)
    observation = random.standard_normal((count, portable.observation_size))
    if (statistics := portable.statistics) is not None and statistics.count > 1:
        deviation = np.sqrt(np.asarray(statistics.squares, float) / float(statistics.count))
        # Some cases lie ten deviations out, where the normaliser clips.
        observation *= deviation * np.where(np.arange(count) % 8, 1.0, 10.0)[:, None]
        observation += np.asarray(statistics.mean)
    spent = portable.augmentation.limit * np.where(
        np.arange(count) % 4, random.uniform(0, 1.5, count), random.uniform(-15, 15, count)
    )
    discount = random.uniform(0.2, 1, count) if portable.augmentation.discount < 1 else np.ones(count)
    return observation.astype(np.float32), discount.astype(np.float32), spent.astype(np.float32)


def check_parity(portable: PortablePolicy, run: Run) -> Parity:
    """Compare an implementation with JAX, or raise a sentence if it differs by more than 1e-5."""
    inputs = random_inputs(portable)
    with jax.default_matmul_precision("highest"):
        truth = jax.jit(lambda *cases: respond(portable, *cases))(*inputs)
    expected: Outputs = {str(name): np.asarray(value) for name, value in truth.items()}
    found = run(*inputs)
    raw = max(float(np.abs(found[name] - value).max()) for name, value in expected.items())
    parity = Parity(len(inputs[0]), _distance(expected, found), raw)
    if not parity.distribution <= TOLERANCE:
        raise CanaryError(
            f"The exported policy differs from the trained one by {parity.distribution:.2g}, more than "
            f"{TOLERANCE:g}; nothing was written: export in another format and report this."
        )
    return parity


def _distance(expected: Outputs, found: Outputs) -> float:
    if "logits" in expected:
        expected, found = ({"chance": _softmax(outputs["logits"])} for outputs in (expected, found))
    return max(
        float((np.abs(found[name] - value) / np.maximum(1, np.abs(value))).max())
        for name, value in expected.items()
    )


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits.astype(float) - logits.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def _named(prefix: str, tree: PyTree) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for distribution in ("canary-rl", "jax", "numpy", "onnx"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[distribution.removesuffix("-rl")] = importlib.metadata.version(distribution)
    return versions
