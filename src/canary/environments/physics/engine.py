"""What a physics engine is: `step(state, control) -> state`, a pure function for one environment.

    engine = make_engine("auto", load_model("eco_ant.xml"), frame_skip=5)
    state = engine.step(state, control)

One call holds the control for `frame_skip` time steps of the model. All that a call depends on is
in its arguments: the solver starts each call cold, so a run is reproducible and can be resumed, and
both engines agree as far as the solver converges (Newton, 4 or more iterations). Engines are used
inside jit, vmap (nested as well) and scan.
"""

import contextlib
import importlib
import os
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

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
    """Generalised positions and velocities, and the model's sensors read in this state under the
    last control.

    `diverged`: the last step led to numbers that are not finite, or huge. The state is then the one
    before that step, so numbers stay finite; the environment has to end the episode.
    """

    qpos: Float[Array, "*env position"]
    qvel: Float[Array, "*env velocity"]
    sensors: Float[Array, "*env sensor"]
    diverged: Bool[Array, "*env"]


@runtime_checkable
class Engine(Protocol):
    """A model with its way of computing a step."""

    @property
    def model(self) -> Any:
        """The `mujoco.MjModel`; must not be changed any more."""
        ...

    @property
    def frame_skip(self) -> int: ...

    def step(self, state: PhysicsState, control: Float[Array, "action"]) -> PhysicsState: ...


def settle(
    before: PhysicsState,
    qpos: Float[Array, "position"],
    qvel: Float[Array, "velocity"],
    sensors: Float[Array, "sensor"],
) -> PhysicsState:
    """The state after a step, or the one before it, marked, if the step diverged."""
    numbers = jnp.concatenate([qpos, qvel, sensors])
    sound = (jnp.abs(numbers) < LARGEST).all()  # False for NaN as well

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(sound, new, old)

    return PhysicsState(
        choose(qpos, before.qpos),
        choose(qvel, before.qvel),
        choose(sensors, before.sensors),
        ~sound,
    )


def resolve(name: EngineName) -> str:
    """The engine that a name means here: `native` or `mjx`."""
    if name == "auto":
        return "native" if jax.default_backend() == "cpu" else "mjx"
    return name


def make_engine(name: EngineName, model: Any, frame_skip: int) -> Engine:
    """An engine for a model without actuator states, mocap bodies and plugins."""
    if resolve(name) == "native":
        from canary.environments.physics.native import native_engine

        return native_engine(model, frame_skip)
    from canary.environments.physics.mjx import MjxEngine

    return MjxEngine(model, frame_skip)


def load_model(file: str) -> Any:
    """The `mujoco.MjModel` of a file in `environments/assets`."""
    return require("mujoco").MjModel.from_xml_path(str(ASSETS / file))


def require(module: str) -> Any:
    """Import a part of MuJoCo, which takes half a second and is put off until something moves."""
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
