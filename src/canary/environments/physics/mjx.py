"""MuJoCo rewritten in JAX (MJX): compiled with the rest of the program, at its best for thousands
of environments at once on an accelerator. On a CPU the native engine is far quicker.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.environments.physics.engine import PhysicsState, require, settle


@dataclass(frozen=True, eq=False)
class MjxEngine:
    """Steps a model by `mjx.step`; the precision is that of the state (float32 unless JAX's x64 is
    on)."""

    model: Any
    frame_skip: int

    def step(self, state: PhysicsState, control: Float[Array, "action"]) -> PhysicsState:
        mjx = require("mujoco.mjx")
        model, data = _put(self.model, jax.dtypes.canonicalize_dtype(float))
        dtype = state.qpos.dtype
        # `data` is fresh: its warm start is zero, as native's is at the beginning of each call.
        data = data.replace(qpos=state.qpos, qvel=state.qvel, ctrl=control.astype(dtype))
        data = jax.lax.fori_loop(0, self.frame_skip, lambda _, data: mjx.step(model, data), data)
        sensors = state.sensors
        if self.model.nsensordata:  # a step leaves those of the state before its last time step
            sensors = mjx.forward(model, data).sensordata.astype(dtype)
        return settle(state, data.qpos.astype(dtype), data.qvel.astype(dtype), sensors)


@lru_cache(maxsize=16)
def _put(model: Any, precision: Any) -> tuple[Any, Any]:
    """The model and an empty state as JAX arrays, in the precision that is switched on."""
    del precision  # part of the cache's key
    mjx = require("mujoco.mjx")
    with jax.ensure_compile_time_eval():
        data = mjx.make_data(model, impl="jax")
        # Arrays that Python scalars made are weakly typed; a loop would refuse them, a second call
        # recompile.
        data = jax.tree.map(
            lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), data
        )
        return mjx.put_model(model, impl="jax"), data
