"""MuJoCo's C library, called from inside JAX programs: the engine for CPUs.

`mujoco.rollout` steps a whole batch in one call, in float64, without Python's lock. The call has a
batching rule, so nested vmaps (seeds over environments) become one call. Two calls may be under way
at once (a thread per seed, several XLA devices) but a `Rollout` and its `MjData` serve one call
only, so each call takes a free worker, or makes one. Inside the call all is numpy: a JAX
computation there could wait for the program that waits for it.

A program calls an engine by a name with a fingerprint of its model in it: a cached program finds the
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


@dataclass(frozen=True)
class Buffers:
    """Arrays of one batch size, used over and over by the one call that holds them."""

    models: list[Any]
    initial: Float[np.ndarray, "env state"]
    control: Float[np.ndarray, "env step action"]
    states: Float[np.ndarray, "env step state"]
    sensors: Float[np.ndarray, "env step sensor"]


@dataclass(frozen=True)
class Worker:
    """What one call at a time can use: a pool of threads (0: the caller's own), a simulation for
    each, buffers."""

    rollout: Any
    data: list[Any]
    buffers: dict[int, Buffers] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class NativeEngine:
    """Steps a model by `mujoco.rollout`; the state is rounded to its own precision after each
    call."""

    model: Any
    frame_skip: int
    name: str
    """Under which programs call it; see `native_engine`."""
    idle: dict[int, deque[Worker]] = field(default_factory=lambda: defaultdict(deque), repr=False)
    under_way: deque[None] = field(default_factory=deque, repr=False)

    def __post_init__(self):
        mujoco = require("mujoco")
        require("mujoco.rollout")  # now, rather than in a callback
        if mujoco.get_mju_user_warning() is None:
            # Divergence is reported in the state. MuJoCo would print it, and write MUJOCO_LOG.TXT
            # where it runs.
            mujoco.set_mju_user_warning(_ignore)

    @cached_property
    def _call(self) -> HostFunction:
        return HostFunction(self.name, self.advance)

    def step(self, state: PhysicsState, control: Float[Array, "action"]) -> PhysicsState:
        model, dtype = self.model, state.qpos.dtype
        packed = jnp.concatenate([state.qpos, state.qvel, control.astype(dtype)])
        result = jax.ShapeDtypeStruct((model.nq + model.nv + model.nsensordata,), dtype)
        after = self._call(result, packed)
        qpos, qvel, sensors = jnp.split(after, [model.nq, model.nq + model.nv])
        return settle(state, qpos, qvel, sensors)

    def advance(self, batch: Float[np.ndarray, "*env input"]) -> Float[np.ndarray, "*env result"]:
        """Rows (qpos, qvel, control) to rows (qpos, qvel, sensors); rows of NaN where the
        simulation diverged."""
        rows = batch.reshape(-1, batch.shape[-1])
        self.under_way.append(None)
        threads = min(CORES // len(self.under_way), len(rows) // SMALLEST_SHARE)
        threads = threads if threads > 1 else 0
        try:
            worker = self.idle[threads].pop()
        except IndexError:
            worker = self._make_worker(threads)
        try:
            result = self._run(worker, rows)
        finally:
            self.idle[threads].append(worker)
            self.under_way.pop()
        return result.reshape(*batch.shape[:-1], -1).astype(batch.dtype)

    def _run(
        self, worker: Worker, rows: Float[np.ndarray, "env input"]
    ) -> Float[np.ndarray, "env result"]:
        count, coordinates, last = len(rows), self.model.nq + self.model.nv, self.frame_skip - 1
        if count not in worker.buffers:
            worker.buffers[count] = self._make_buffers(count)
        buffers = worker.buffers[count]
        buffers.initial[:, 0] = 0.0
        buffers.initial[:, 1:] = rows[:, :coordinates]
        buffers.control[...] = rows[:, None, coordinates:]
        worker.rollout.rollout(
            buffers.models,
            worker.data,
            buffers.initial,
            buffers.control,
            skip_checks=True,
            nstep=buffers.states.shape[1],
            state=buffers.states,
            sensordata=buffers.sensors,
            chunk_size=-(-count // len(worker.data)),
        )
        result = np.concatenate([buffers.states[:, last, 1:], buffers.sensors[:, -1]], axis=-1)
        # A rollout that diverges repeats its last state, so its clock stands still.
        clock = buffers.states[:, last, 0]
        result[clock < (last + 0.5) * self.model.opt.timestep] = np.nan
        return result

    def _make_worker(self, threads: int) -> Worker:
        mujoco, rollout = require("mujoco"), require("mujoco.rollout")
        data = [mujoco.MjData(self.model) for _ in range(max(1, threads))]
        return Worker(rollout.Rollout(nthread=threads), data)

    def _make_buffers(self, count: int) -> Buffers:
        """Sensors belong to the state before a time step, so one more is made to read those of the
        last state."""
        model = self.model
        steps = self.frame_skip + (1 if model.nsensordata else 0)
        return Buffers(
            models=[model] * count,
            initial=np.zeros((count, 1 + model.nq + model.nv)),
            control=np.zeros((count, steps, model.nu)),
            states=np.zeros((count, steps, 1 + model.nq + model.nv)),
            sensors=np.zeros((count, steps, model.nsensordata)),
        )


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


def _ignore(message: str) -> None:
    del message
