"""A frozen policy with all it needs to act elsewhere, and the test that another implementation acts
the same.

All formats take an observation s, the cost discount g and the spent cost y in raw units, and give
the parameters of the action distribution; the normaliser, the division by the limit and the clips
are part of the artefact.
"""

import importlib.metadata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float

from canary.algorithms.remaining_risk import RiskCritics
from canary.environments.protocol import ActionSpace, Discrete
from canary.errors import CanaryError
from canary.identity import Identity, Place, identify
from canary.networks import Categorical, Policy
from canary.numerics.running_statistics import RunningStatistics
from canary.rollout import CostAccount, policy_inputs

FORMAT = 3  # of the metadata; 2 had no interface
TOLERANCE = 1e-5
CHECKED_INPUTS = 512

Outputs = dict[str, np.ndarray]
Run = Callable[[np.ndarray, np.ndarray, np.ndarray], Outputs]
"""An implementation: observation [case, obs], discount [case], spent [case] to outputs [case,
action]."""


@dataclass(frozen=True)
class PortablePolicy:
    """What is exported; `about` is plain data that describes where it comes from."""

    policy: Policy
    statistics: RunningStatistics | None
    account: CostAccount
    place: Place
    about: dict[str, Any]
    """At least algorithm, epsilon, seed and updates."""
    critics: RiskCritics | None = None

    @property
    def identity(self) -> Identity:
        return identify(self.policy, self.statistics, self.account, self.place, self.critics)

    @property
    def observation_size(self) -> int:
        return self.place.observation_size

    @property
    def action_space(self) -> ActionSpace:
        return self.place.action_space


@dataclass(frozen=True)
class Parity:
    """How far another implementation is from JAX on random inputs."""

    inputs: int
    distribution: float
    """Largest difference of probabilities or, relative to max(1, |value|), means and log
    deviations."""
    outputs: float
    """Largest difference of the networks' raw outputs; float32 cannot do better than 1e-6 of their
    size."""


def metadata(portable: PortablePolicy) -> dict[str, Any]:
    """Everything but the numbers of the networks, as JSON data."""
    identity = portable.identity
    return (
        portable.about
        | identity.facts
        | {
            "format": FORMAT,
            "inputs": ["observation", "discount", "spent"],
            "outputs": output_names(portable),
            "interface": portable.place.interface,
            "facts": sorted(identity.facts),
            "policy_sha256": identity.sha256,
            "versions": _versions(),
        }
    )


def output_names(portable: PortablePolicy) -> list[str]:
    return ["logits"] if isinstance(portable.action_space, Discrete) else ["mean", "log_std"]


def respond(
    portable: PortablePolicy,
    observation: Float[Array, "case obs"],
    discount: Float[Array, "case"],
    spent: Float[Array, "case"],
) -> dict[str, Float[Array, "case action"]]:
    """What the policy in JAX makes of these inputs: the truth that all formats are held to."""
    x = policy_inputs(observation, spent, discount, portable.account, portable.statistics)
    distribution = portable.policy(x)
    if isinstance(distribution, Categorical):
        return {"logits": distribution.logits}
    return {"mean": distribution.mean, "log_std": distribution.log_std}


def random_inputs(
    portable: PortablePolicy, count: int = CHECKED_INPUTS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations as the normaliser knows them (else standard normal); accounts that pass all
    clips."""
    random = np.random.default_rng(seed)
    observation = random.standard_normal((count, portable.observation_size))
    if (statistics := portable.statistics) is not None and statistics.count > 1:
        deviation = np.sqrt(np.asarray(statistics.squares, float) / float(statistics.count))
        # Some cases lie ten deviations out, where the normaliser clips.
        observation *= deviation * np.where(np.arange(count) % 8, 1.0, 10.0)[:, None]
        observation += np.asarray(statistics.mean)
    spent = float(portable.account.limit) * np.where(
        np.arange(count) % 4, random.uniform(0, 1.5, count), random.uniform(-15, 15, count)
    )
    discount = (
        random.uniform(0.2, 1, count) if portable.account.cost_discount < 1 else np.ones(count)
    )
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
            f"The exported policy differs from the trained one by {parity.distribution:.2g}, more "
            f"than {TOLERANCE:g}; nothing was written: export in another format and report this."
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


def _versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for distribution in ("canary-rl", "jax", "numpy", "onnx"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[distribution.removesuffix("-rl")] = importlib.metadata.version(distribution)
    return versions
