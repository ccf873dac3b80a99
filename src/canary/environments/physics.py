"""MuJoCo as pure functions: `engine.step(state, control) -> state` for one environment.

    engine = make_engine("auto", load_model("eco_ant.xml"), frame_skip=5)
    state = engine.step(state, control)

A call holds the control for `frame_skip` time steps of the model. The solver has no warm start
across calls, so a step depends on its arguments only, and the two engines agree as far as the
solver converges (Newton, 4 or more iterations). Engines work inside jit, nested vmap and scan.
"""

import contextlib
import hashlib
import importlib
import os
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from canary.environments.host_call import HostFunction
from canary.errors import CanaryError

EngineName = Literal["auto", "native", "mjx"]
"""`auto` is `native` if JAX computes on a CPU, else `mjx`."""

ASSETS = Path(__file__).parent / "assets"
LARGEST = 1e10  # MuJoCo's bound (mjMAXVAL); a simulation with a larger number has diverged
SMALLEST_SHARE = 32  # environments per thread; fewer are not worth another thread
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class PhysicsState(eqx.Module):
    """Generalised positions and velocities.

    `diverged`: the last step gave non-finite or huge numbers. The state is then the one before that
    step, and the environment must end the episode.
    """

    qpos: Float[Array, "*env position"]
    qvel: Float[Array, "*env velocity"]
    diverged: Bool[Array, "*env"]


def settle(
    before: PhysicsState, qpos: Float[Array, "position"], qvel: Float[Array, "velocity"]
) -> PhysicsState:
    """The state after a step or, if the step diverged, the state before it with `diverged` set."""
    # Also False for NaN
    sound = (jnp.abs(jnp.concatenate([qpos, qvel])) < LARGEST).all()
    kept = jnp.where(sound, qpos, before.qpos), jnp.where(sound, qvel, before.qvel)
    return PhysicsState(*kept, ~sound)


@dataclass(frozen=True, eq=False)
class MjxEngine:
    """MuJoCo in JAX, in the precision of the state, for thousands of environments at once."""

    model: Any
    frame_skip: int

    def step(self, state: PhysicsState, control: Float[Array, "action"]) -> PhysicsState:
        mjx = require("mujoco.mjx")
        model, data = _on_device(self.model, jax.dtypes.canonicalize_dtype(float))
        dtype = state.qpos.dtype
        # `data` is fresh: its warm start is zero, as in each call of the native engine.
        data = data.replace(qpos=state.qpos, qvel=state.qvel, ctrl=control.astype(dtype))
        data = jax.lax.fori_loop(0, self.frame_skip, lambda _, data: mjx.step(model, data), data)
        return settle(state, data.qpos.astype(dtype), data.qvel.astype(dtype))


@lru_cache(maxsize=16)
def _on_device(model: Any, precision: Any) -> tuple[Any, Any]:
    """The model and an empty state as JAX arrays, in JAX's current precision."""
    del precision  # only a part of the cache's key
    mjx = require("mujoco.mjx")
    with jax.ensure_compile_time_eval():
        data = mjx.make_data(model, impl="jax")
        # Arrays from Python scalars have weak types, which a loop refuses.
        data = jax.tree.map(
            lambda leaf: jax.lax.convert_element_type(leaf, jnp.asarray(leaf).dtype), data
        )
        return mjx.put_model(model, impl="jax"), data


@dataclass(frozen=True, eq=False)
class NativeEngine:
    """MuJoCo's C library, called from inside JAX programs: the engine for CPUs.

    `mujoco.rollout` steps a whole batch in one call, in float64, without Python's lock; the result
    is rounded to the precision of the state. Nested vmaps (seeds over environments) become one
    call. Seeds may call concurrently, but a `Rollout` and its `MjData` serve one call at a time, so
    each call takes an idle pair or makes one. The call uses numpy only: a JAX computation in it
    could wait for the program that waits for the call.
    """

    model: Any
    frame_skip: int
    name: str
    """The name by which programs call the engine. It contains a digest of the model, so that a
    cached program finds the engine of the same model in another process."""
    idle: dict[int, deque[tuple[Any, list[Any]]]] = field(
        default_factory=lambda: defaultdict(deque), repr=False
    )
    """Idle rollouts by number of threads, with an `MjData` per thread."""

    def __post_init__(self):
        mujoco = require("mujoco")
        require("mujoco.rollout")  # here, not in a callback
        if mujoco.get_mju_user_warning() is None:
            # The state reports divergence. MuJoCo would also print it and write MUJOCO_LOG.TXT.
            mujoco.set_mju_user_warning(lambda message: None)

    @cached_property
    def _call(self) -> HostFunction:
        return HostFunction(self.name, self.advance)

    def step(self, state: PhysicsState, control: Float[Array, "action"]) -> PhysicsState:
        model, dtype = self.model, state.qpos.dtype
        packed = jnp.concatenate([state.qpos, state.qvel, control.astype(dtype)])
        after = self._call(jax.ShapeDtypeStruct((model.nq + model.nv,), dtype), packed)
        return settle(state, *jnp.split(after, [model.nq]))

    def advance(self, batch: Float[np.ndarray, "*env input"]) -> Float[np.ndarray, "*env result"]:
        """Rows (qpos, qvel, control) -> rows (qpos, qvel), NaN if the simulation diverged."""
        rows = batch.reshape(-1, batch.shape[-1])
        threads = min(CORES, len(rows) // SMALLEST_SHARE)
        threads = threads if threads > 1 else 0  # 0: the thread of the caller
        try:
            worker = self.idle[threads].pop()
        except IndexError:
            data = [require("mujoco").MjData(self.model) for _ in range(max(1, threads))]
            worker = require("mujoco.rollout").Rollout(nthread=threads), data
        try:
            result = self._run(*worker, rows)
        finally:
            self.idle[threads].append(worker)
        return result.reshape(*batch.shape[:-1], -1).astype(batch.dtype)

    def _run(
        self, rollout: Any, data: list[Any], rows: Float[np.ndarray, "env input"]
    ) -> Float[np.ndarray, "env result"]:
        model, count, steps = self.model, len(rows), self.frame_skip
        coordinates = model.nq + model.nv
        initial = np.zeros((count, 1 + coordinates))  # time, positions, velocities
        initial[:, 1:] = rows[:, :coordinates]
        control = np.repeat(rows[:, None, coordinates:].astype(float), steps, axis=1)
        states = np.empty((count, steps, 1 + coordinates))
        rollout.rollout(
            [model] * count, data, initial, control, skip_checks=True, nstep=steps, state=states,
            sensordata=np.empty((count, steps, model.nsensordata)), chunk_size=-(-count // len(data)),
        )  # fmt: skip
        clock, result = states[:, -1, 0], states[:, -1, 1:]
        # A diverged rollout repeats its last state, so its clock stops
        result[clock < (steps - 0.5) * model.opt.timestep] = np.nan
        return result


Engine = NativeEngine | MjxEngine
_NATIVE: dict[str, NativeEngine] = {}


def resolve(name: EngineName) -> EngineName:
    """The engine for a name: `native` or `mjx`."""
    if name == "auto":
        return "native" if jax.default_backend() == "cpu" else "mjx"
    return name


def make_engine(name: EngineName, model: Any, frame_skip: int) -> Engine:
    """An engine for a `mujoco.MjModel`, which must not change later and has no actuator states,
    mocap bodies or plugins. Equal models share one native engine, which exists as long as the
    process, because compiled programs call it."""
    if resolve(name) == "mjx":
        return MjxEngine(model, frame_skip)
    if (device := jax.default_backend()) != "cpu":
        raise CanaryError(f"The native engine runs on a CPU; JAX computes on a {device}: use mjx.")
    mujoco = require("mujoco")
    content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    digest = hashlib.sha256(content.tobytes() + f"{frame_skip}".encode()).hexdigest()
    name_of_call = f"canary_mujoco_{digest[:32]}"
    if name_of_call not in _NATIVE:
        _NATIVE[name_of_call] = NativeEngine(model, frame_skip, name_of_call)
    return _NATIVE[name_of_call]


def load_model(file: str) -> Any:
    """The `mujoco.MjModel` of a file in `environments/assets`."""
    return require("mujoco").MjModel.from_xml_path(str(ASSETS / file))


def require(module: str) -> Any:
    """Import a part of MuJoCo, or explain what to install."""
    try:
        with contextlib.redirect_stdout(None):  # MJX prints that it found no Warp
            return importlib.import_module(module)
    except (ImportError, AttributeError) as error:  # the latter if MUJOCO_GL has no library
        raise CanaryError(
            f"This environment needs MuJoCo ({error}): pip install 'canary-rl[mujoco]'; if it is "
            "installed, unset MUJOCO_GL."
        ) from None
