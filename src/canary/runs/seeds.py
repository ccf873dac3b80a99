"""The seeds of a run: the program that advances them, and the checks of its results.

On a CPU each seed is a call of the same compiled program, from one thread per core. The program does
not depend on the number of seeds, so seed 3 alone equals seed 3 among 8, bit for bit. Its working set
stays in the cache, and branches are not both computed. An accelerator needs many seeds at once to be
busy, so there a group of seeds is one vectorised program, and devices take groups in turn.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from canary.algorithms import ALGORITHMS
from canary.algorithms.base import Task
from canary.config.config import RunConfig
from canary.constraints import parts_of
from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import explain_failures
from canary.errors import CanaryError
from canary.host.references import describe
from canary.host_loop import HostTraining
from canary.identity import named
from canary.numerics.running_statistics import sane
from canary.rollout import CostAccount
from canary.training import (
    FAULT,
    FAULT_KINDS,
    Trainer,
    TrainingState,
    init_training,
    train_chunk,
    train_iteration,
)
from canary.types import EpisodeEnds, Terms


def make_trainer(config: RunConfig) -> Trainer:
    environment, training = config.environment, config.training
    on_cpu = jax.default_backend() == "cpu"
    kinds = tuple(part.kind for part in parts_of(config.constraint))
    task = Task(
        input_size=environment.observation_size + CostAccount.SIZE - 1 + len(kinds),
        action_space=environment.action_space,
        horizon=environment.horizon,
        constraint=kinds[0] if len(kinds) == 1 else kinds,
        # Merging branches on data; a vectorised group of seeds would compute both branches.
        merge_capacity=training.merge_capacity if on_cpu and training.seeds_per_device <= 1 else 0,
    )
    return Trainer(
        environment=environment,
        algorithm=config.algorithm.make(task),
        cost_discount=config.algorithm.estimation.cost_discount,
        clock=config.clock,
        environments=training.environments,
        rollout_length=training.rollout_length,
        stagger=training.stagger,
    )


def _check_own_method(config: RunConfig, trainer: Trainer) -> None:
    """Trace an update of a user's method, to find mistakes before anything is computed."""
    is_host = isinstance(config.environment, GymnasiumEnvironment)  # cannot be traced
    if type(config.algorithm) in ALGORITHMS.values() or is_host:
        return
    terms, name = make_terms(config), config.algorithm_name
    try:
        state = jax.eval_shape(partial(init_training, trainer, terms), 0)
        _, (metrics, _) = jax.eval_shape(partial(train_iteration, trainer), state)
    except Exception as error:
        raise CanaryError(f"An update of {name} failed: {describe(error)}.") from error
    for metric, value in metrics.items():
        if value.shape:
            raise CanaryError(
                f"The metric {metric!r} of {name} has the shape {value.shape}; a metric is a "
                "single number per update."
            )


def make_terms(config: RunConfig) -> Terms:
    """The terms of a run at its start."""
    limit, share = jnp.float32(config.constraint.limit), jnp.float32(config.constraint.share)
    training = config.training
    return Terms(limit, share, jnp.int32(training.updates), jnp.int32(0), training.fine_tuning)


class CompiledTraining:
    """Training on a JAX environment: a program for a chunk of updates of one seed or, if `together`,
    of a group of seeds along a first axis. `HostTraining` has the same interface."""

    def __init__(
        self, trainer: Trainer, options: dict[str, Any] | None, size: int, *, together: bool
    ):
        init: Callable[..., Any] = partial(init_training, trainer)
        chunk: Callable[..., Any] = partial(train_chunk, trainer, size=size)
        self.structure = lambda terms: jax.eval_shape(init, terms, jnp.int32(0))
        if together:
            init, chunk = jax.vmap(init, (None, 0)), jax.vmap(chunk, (0, None))
        self.init = jax.jit(init, compiler_options=options)
        # The states before a chunk are not donated: they are saved if the chunk fails.
        self.chunk = jax.jit(chunk, compiler_options=options)

    def revive(self, state: TrainingState) -> tuple[TrainingState, int]:
        return state, 0


class SeedGroups:
    """The training states of all seeds, in groups, and the program that advances a group."""

    def __init__(self, config: RunConfig, trainer: Trainer | None = None):
        seeds, per_group = config.training.seeds, config.training.seeds_per_device
        self.trainer, self._config = trainer or make_trainer(config), config
        devices = jax.devices()
        on_cpu = devices[0].platform == "cpu"
        # XLA's thread pool can deadlock under concurrent programs, so programs use one thread.
        options = {"xla_cpu_multi_thread_eigen": False} if on_cpu else None
        per_group = per_group or (1 if on_cpu else -(-len(seeds) // len(devices)))
        if isinstance(config.environment, GymnasiumEnvironment):
            self.training, per_group = HostTraining(self.trainer, options), 1
        else:
            size = config.training.chunk
            self.training = CompiledTraining(self.trainer, options, size, together=per_group > 1)
        self._together = per_group > 1
        self._groups = [seeds[at : at + per_group] for at in range(0, len(seeds), per_group)]
        self._devices = [devices[index % len(devices)] for index in range(len(self._groups))]
        self._threads = (os.cpu_count() or 1) if on_cpu else len(devices)
        self.states: Sequence[TrainingState] = ()

    def start(self) -> None:
        """Fresh states for all seeds."""
        _check_own_method(self._config, self.trainer)
        terms = make_terms(self._config)

        def init(group: tuple[int, ...], device: Any) -> TrainingState:
            seeds = np.asarray(group, np.int32)
            return self.training.init(terms, jax.device_put(self._of_group(seeds), device))

        self.states = self._in_threads(init, self._groups, self._devices)

    def _in_threads(self, function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
        """Call a function for every group, in as many threads as there are cores or accelerators."""
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(function, *arguments))

    def _of_group(self, array: Any) -> Any:
        """An array stacked over the seeds of a group, in the form that its program takes."""
        return array if self._together else array[0]

    def _join(self, arrays: Sequence[Any]) -> np.ndarray:
        """One array over all seeds from the arrays of the groups."""
        found = [np.asarray(array) for array in arrays]
        return np.concatenate(found) if self._together else np.stack(found)

    def structure(self) -> PyTree:
        """Shapes and types of the stacked states, without computing them."""
        count = len(self._config.training.seeds)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype),
            self.training.structure(make_terms(self._config)),
        )

    def restore(self, stacked: PyTree) -> int:
        """Continue from states stacked along their first axis, one entry per seed; replays host
        environments. Returns how many episodes could not be restored."""
        bounds = np.cumsum([0, *map(len, self._groups)])
        states = [
            jax.device_put(
                jax.tree.map(lambda leaf, a=a, b=b: self._of_group(leaf[a:b]), stacked), device
            )
            for a, b, device in zip(bounds[:-1], bounds[1:], self._devices, strict=True)
        ]
        self.states, lost = zip(*map(self.training.revive, states), strict=True)
        return sum(lost)

    def stacked(self) -> PyTree:
        """All states on the host, stacked over seeds."""

        def joined(*leaves: jax.Array) -> Any:
            if not jax.dtypes.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
                return self._join(leaves)
            data = self._join([jax.random.key_data(leaf) for leaf in leaves])
            return jax.random.wrap_key_data(
                jnp.asarray(data), impl=str(jax.random.key_impl(leaves[0]))
            )

        return jax.tree.map(joined, *self.states)

    def advance(self, count: int) -> tuple[dict[str, np.ndarray], EpisodeEnds]:
        """`count` updates of every seed; metrics and episodes as numpy arrays [seed, update, ...].
        On a fault, raise and leave the states as they were."""

        def run(state: TrainingState) -> Any:
            return jax.block_until_ready(self.training.chunk(state, np.int32(count)))

        with explain_failures(self._config.environment):
            results = self._in_threads(run, self.states)
        states = [state for state, _ in results]
        metrics, ends = jax.tree.map(
            lambda *leaves: self._join(leaves)[:, :count], *(record for _, record in results)
        )
        done = int(np.asarray(self.states[0].terms.iteration).min())
        fault = find_fault(metrics.pop(FAULT), ends, self._config, done)
        if fault := fault or unsound(self._groups, states):
            raise CanaryError(fault)
        self.states = states
        return metrics, ends


def find_fault(
    faults: Float[np.ndarray, "seed update"], ends: EpisodeEnds, config: RunConfig, first: int
) -> str | None:
    """A sentence about the first fault in a chunk of updates that begins at `first`: a non-finite
    or absurdly large number, or an episode beyond its horizon. Faults are in the program's metric,
    or in the sums of the episodes."""
    training, name, horizon = config.training, config.environment_name, config.environment.horizon
    if faults.any():
        # The earliest fault, of the first seed
        update, seed = map(int, np.argwhere(faults.T > 0)[0])
        place, index = divmod(int(faults[seed, update]) - 1, len(FAULT_KINDS))
        kind, (step, lane) = FAULT_KINDS[index], divmod(place, training.environments)
    else:
        good = {
            "cost": sane(ends.cost).reshape(*ends.ended.shape, -1).all(-1),
            "reward": sane(ends.reward),
            "end": np.asarray(ends.length) <= horizon,
        }
        if (kind := next((kind for kind, each in good.items() if not each.all()), None)) is None:
            return None
        update, step, lane, seed = np.argwhere(~np.moveaxis(good[kind], 0, -1))[0]
    update += first
    where = (
        f"seed {training.seeds[seed]}, update {update + 1}, step {step + 1} of "
        f"{training.rollout_length}, lane {lane}"
    )
    if kind == "action":
        return f"The policy gave an action that is not finite: {where}."
    if kind == "end":
        return (
            f"{name} continued beyond its horizon of {horizon:,} steps: {where}; write truncated = "
            "(time >= horizon) & ~terminated."
        )
    what = "an observation" if kind == "observation" else f"a {kind}"
    return (
        f"{name} gave {what} that is not finite, or absurdly large: {where}; `canary check-env` "
        "looks for the cause."
    )


def unsound(groups: Sequence[tuple[int, ...]], states: Sequence[TrainingState]) -> str | None:
    """A sentence about the first seed with a weight or statistic that is not finite."""
    for seeds, state in zip(groups, states, strict=True):
        learner = state.learner
        arrays = named("policy", learner.policy) | named("critics", learner.critics)
        for name, array in (arrays | named("statistics", state.statistics)).items():
            good = sane(array) if name.startswith("policy") else np.isfinite(array)
            if not (good := good.reshape(len(seeds), -1).all(1)).all():
                return (
                    "Training gave numbers that are not finite, or absurdly large: "
                    f"{name} of seed {seeds[int(np.argmin(good))]}. Large costs, rewards or learning "
                    "rates cause this; `canary check-env` checks costs and rewards."
                )
    return None
