"""The numpy file, and the comparison of any format with JAX.

Every format maps an observation, the pace and the spent cost in raw units to the parameters of the
action distribution. The normaliser, the division by the limit and the clips are part of the file.
"""

import io
import json
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from canary.errors import CanaryError
from canary.export import numpy_policy
from canary.export.trained_policy import TrainedPolicy

TOLERANCE = 1e-5
CHECKED_INPUTS = 512

Implementation = Callable[[np.ndarray, np.ndarray, np.ndarray], dict[str, np.ndarray]]
"""observation [case, obs], pace [case], spent [case] or, of several costs, [case, cost] -> outputs
[case, action]."""


def numpy_bytes(trained: TrainedPolicy) -> bytes:
    """An .npz file of plain arrays and JSON metadata for `numpy_policy.load`."""
    arrays, known = trained.identity.arrays, trained.metadata
    text = json.dumps(known | {"file_sha256": numpy_policy.digest(known, arrays)}, allow_nan=False)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, metadata=np.frombuffer(text.encode(), np.uint8), **arrays)  # type: ignore
    return buffer.getvalue()


def numpy_implementation(data: bytes) -> Implementation:
    return numpy_policy.load(io.BytesIO(data)).outputs


def random_inputs(trained: TrainedPolicy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations with the normaliser's moments (else standard normal), and accounts on both
    sides of every clip."""
    random, count = np.random.default_rng(0), CHECKED_INPUTS
    observation = random.standard_normal((count, trained.place.observation_size))
    if (statistics := trained.statistics) is not None and statistics.count > 1:
        deviation = np.sqrt(np.asarray(statistics.squares, float) / float(statistics.count))
        # Every eighth case lies about ten deviations out, where the normaliser clips
        observation *= deviation * np.where(np.arange(count) % 8, 1.0, 10.0)[:, None]
        observation += np.asarray(statistics.mean)
    near, far = random.uniform(0, 1.5, count), random.uniform(-15, 15, count)
    spent = np.where(np.arange(count) % 4, near, far)
    limit = np.asarray(trained.account.limit, float)
    spent = spent * limit if limit.ndim == 0 else random.permuted(np.outer(spent, limit), axis=0)
    varies = trained.account.clock is not None or trained.account.cost_discount < 1
    pace = random.uniform(0, 1, count) if varies else np.ones(count)
    return observation.astype(np.float32), pace.astype(np.float32), spent.astype(np.float32)


def check_parity(trained: TrainedPolicy, implementation: Implementation) -> dict[str, Any]:
    """The largest differences between an implementation and JAX on random inputs; a CanaryError if
    action distributions differ by more than 1e-5.

    `max_abs_difference` compares probabilities or, relative to max(1, |value|), means and log
    deviations. `max_output_difference` compares the raw outputs of the networks; float32 resolves
    about 1e-6 of their size.
    """
    inputs = random_inputs(trained)
    with jax.default_matmul_precision("highest"):
        truth = jax.jit(trained.distribution)(*inputs)
    found, far, raw = implementation(*inputs), 0.0, 0.0
    for name in trained.outputs:
        one, other = np.asarray(getattr(truth, name)), found[name]
        raw = max(raw, float(np.abs(one - other).max()))
        if name == "logits":
            one, other = map(numpy_policy.probabilities, (one, other))
        far = max(far, float((np.abs(one - other) / np.maximum(1, np.abs(one))).max()))
    if not far <= TOLERANCE:
        raise CanaryError(
            f"The exported policy differs from the trained one by {far:.2g}, so nothing was written; "
            "try another format, and report this."
        )
    return {
        "checked_inputs": len(inputs[0]),
        "max_abs_difference": far,
        "max_output_difference": raw,
    }
