"""MuJoCo's C library, called from inside JAX programs: the engine for CPUs.

`mujoco.rollout` steps a whole batch in one call, in float64, without Python's lock. The call has a
batching rule, so nested vmaps (seeds over environments) become one call. Calls of several seeds may
be under way at once, but a `Rollout` and its `MjData` serve one call only, so each call takes an
idle pair or makes one. Inside the call all is numpy: a JAX computation there could wait for the
program that waits for it.

A program calls an engine by a name with a fingerprint of its model, so a cached program finds the
engine of the same model in another process.
"""

import hashlib
import os
from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from canary.environments.physics.engine import PhysicsState, require, settle
from canary.environments.physics.host_call import HostFunction

SMALLEST_SHARE = 32  # environments that are worth waking another thread for
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class NativeEngine:
    """Steps a model by `mujoco.rollout`; the state is rounded to its own precision after each
    call."""

    model: Any
    frame_skip: int
    name: str
    """Under which programs call it; see `native_engine`."""
    idle: dict[int, deque[tuple[Any, list[Any]]]] = field(
        default_factory=lambda: defaultdict(deque), repr=False
    )
    """By the number of threads: rollouts with an `MjData` per thread."""

    def __post_init__(self):
        mujoco = require("mujoco")
        require("mujoco.rollout")  # now, rather than in a callback
        if mujoco.get_mju_user_warning() is None:
            # The state says that it diverged. MuJoCo would print that and write MUJOCO_LOG.TXT.
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
        """Rows (qpos, qvel, control) to rows (qpos, qvel), of NaN where the simulation diverged."""
        rows = batch.reshape(-1, batch.shape[-1])
        threads = min(CORES, len(rows) // SMALLEST_SHARE)
        threads = threads if threads > 1 else 0  # 0: the thread of the caller
        try:
            worker = self.idle[threads].pop()
        except IndexError:
            worker = self._make_worker(threads)
        try:
            result = self._run(*worker, rows)
        finally:
            self.idle[threads].append(worker)
        return result.reshape(*batch.shape[:-1], -1).astype(batch.dtype)

    def _make_worker(self, threads: int) -> tuple[Any, list[Any]]:
        mujoco, rollout = require("mujoco"), require("mujoco.rollout")
        data = [mujoco.MjData(self.model) for _ in range(max(1, threads))]
        return rollout.Rollout(nthread=threads), data

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
        # A rollout that diverges repeats its last state, so its clock stands still
        result[clock < (steps - 0.5) * model.opt.timestep] = np.nan
        return result


_ENGINES: dict[str, NativeEngine] = {}


def native_engine(model: Any, frame_skip: int) -> NativeEngine:
    """The engine of a model. Equal models share one engine, which lives as long as the process,
    because compiled programs call it."""
    mujoco = require("mujoco")
    content = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, content)
    digest = hashlib.sha256(content.tobytes() + f"{frame_skip}".encode()).hexdigest()
    name = f"canary_mujoco_{digest[:32]}"
    if name not in _ENGINES:
        _ENGINES[name] = NativeEngine(model, frame_skip, name)
    return _ENGINES[name]
