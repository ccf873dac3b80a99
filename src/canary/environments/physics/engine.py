"""A physics engine is `step(state, control) -> state`, a pure function for one environment.

    engine = make_engine("auto", load_model("eco_ant.xml"), frame_skip=5)
    state = engine.step(state, control)

One call holds the control for `frame_skip` time steps of the model. The solver starts each call
cold, so a step depends on nothing but its arguments, and both engines agree as far as the solver
converges (Newton, 4 or more iterations). Engines work inside jit, nested vmap and scan.
"""

import contextlib
import importlib
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from canary.errors import CanaryError

EngineName = Literal["auto", "native", "mjx"]
"""`auto` is `native` where JAX computes on a CPU, and `mjx` on accelerators."""

ASSETS = Path(__file__).parents[1] / "assets"
# MuJoCo's own bound (mjMAXVAL): a larger coordinate means that the simulation has diverged
LARGEST = 1e10


class PhysicsState(eqx.Module):
    """Generalised positions and velocities.

    `diverged`: the last step led to non-finite or huge numbers. The state is then the one before
    that step, and the environment has to end the episode.
    """

    qpos: Float[Array, "*env position"]
    qvel: Float[Array, "*env velocity"]
    diverged: Bool[Array, "*env"]


class Engine(Protocol):
    """A `mujoco.MjModel`, which must not change any more, and how to step it."""

    @property
    def model(self) -> Any: ...

    def step(self, state: PhysicsState, control: Float[Array, "action"]) -> PhysicsState: ...


def settle(
    before: PhysicsState,
    qpos: Float[Array, "position"],
    qvel: Float[Array, "velocity"],
) -> PhysicsState:
    """The state after a step, or the one before it, marked, if the step diverged."""
    # False for NaN as well
    sound = (jnp.abs(jnp.concatenate([qpos, qvel])) < LARGEST).all()
    kept = jnp.where(sound, qpos, before.qpos), jnp.where(sound, qvel, before.qvel)
    return PhysicsState(*kept, ~sound)


def resolve(name: EngineName) -> EngineName:
    """The engine that a name means here: `native` or `mjx`."""
    if name == "auto":
        return "native" if jax.default_backend() == "cpu" else "mjx"
    return name


def make_engine(name: EngineName, model: Any, frame_skip: int) -> Engine:
    """An engine for a model without actuator states, mocap bodies and plugins."""
    if resolve(name) == "native":
        from canary.environments.physics.native import native_engine

        return native_engine(model, frame_skip)
    return MjxEngine(model, frame_skip)


@dataclass(frozen=True, eq=False)
class MjxEngine:
    """MuJoCo in JAX: at its best for thousands of environments at once on an accelerator. The
    precision is that of the state."""

    model: Any
    frame_skip: int

    def step(self, state: PhysicsState, control: Float[Array, "action"]) -> PhysicsState:
        mjx = require("mujoco.mjx")
        model, data = _on_device(self.model, jax.dtypes.canonicalize_dtype(float))
        dtype = state.qpos.dtype
        # `data` is fresh: its warm start is zero, as native's is at the beginning of each call.
        data = data.replace(qpos=state.qpos, qvel=state.qvel, ctrl=control.astype(dtype))
        data = jax.lax.fori_loop(0, self.frame_skip, lambda _, data: mjx.step(model, data), data)
        return settle(state, data.qpos.astype(dtype), data.qvel.astype(dtype))


@lru_cache(maxsize=16)
def _on_device(model: Any, precision: Any) -> tuple[Any, Any]:
    """The model and an empty state as JAX arrays, in the precision that is switched on."""
    del precision  # part of the cache's key
    mjx = require("mujoco.mjx")
    with jax.ensure_compile_time_eval():
        data = mjx.make_data(model, impl="jax")
        # Arrays made of Python scalars are weakly typed; a loop would refuse them.
        data = jax.tree.map(
            lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), data
        )
        return mjx.put_model(model, impl="jax"), data


def load_model(file: str) -> Any:
    """The `mujoco.MjModel` of a file in `environments/assets`."""
    return require("mujoco").MjModel.from_xml_path(str(ASSETS / file))


def require(module: str) -> Any:
    """Import a part of MuJoCo, which takes half a second."""
    try:
        with contextlib.redirect_stdout(None):  # MJX prints that it found no Warp
            return importlib.import_module(module)
    except ImportError as error:
        raise CanaryError(
            f"This environment needs MuJoCo ({error}): pip install 'canary-rl[mujoco]'."
        ) from None
    except AttributeError as error:  # PyOpenGL: the library named by MUJOCO_GL is missing
        raise CanaryError(
            "MuJoCo cannot load the graphics library of "
            f"MUJOCO_GL={os.environ.get('MUJOCO_GL', '')} ({error}): install it or unset MUJOCO_GL."
        ) from None
