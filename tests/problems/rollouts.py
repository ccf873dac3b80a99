"""Rollouts of a few known numbers."""

import jax.numpy as jnp
import numpy as np

from canary.types import EpisodeEnds, Rollout


def make_rollout(*, time: int, env: int, **known) -> Rollout:
    """A rollout in which what is not given is 0, no episode ends, and nothing is discounted."""
    zero, no = jnp.zeros((time, env)), jnp.zeros((time, env), bool)
    inputs = known.get("inputs", jnp.zeros((time, env, 1)))
    ends = EpisodeEnds(no, ~no, zero, zero, zero.astype(jnp.int32), no)
    fields = {
        "inputs": inputs, "next_inputs": inputs,
        "action": zero.astype(jnp.int32), "reward": zero, "cost": zero, "spent": zero, "spent_raw": zero,
        "discount": zero + 1, "terminated": no, "truncated": no, "episodes": ends,
    }  # fmt: skip
    return Rollout(**fields | known)


def one_lane(**known) -> Rollout:
    """A rollout of one environment from sequences over time."""
    arrays = {name: jnp.asarray(np.asarray(values))[:, None] for name, values in known.items()}
    return make_rollout(time=len(next(iter(arrays.values()))), env=1, **arrays)
