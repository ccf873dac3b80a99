"""The seeds of a run side by side: what trains them, and the program that advances them.

On a CPU every seed is a call of the same compiled program, and a thread per core makes the calls.
The program does not depend on the number of seeds: seed 3 alone equals seed 3 among 8, bit for bit.
Its working set stays in the cache, and control flow stays control flow. An accelerator needs many
seeds at once to be busy, so there a group of seeds is one vectorised program, and groups go to the
devices in turn.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from canary.algorithms import ALGORITHMS
from canary.algorithms.base import Task
from canary.config.config import RunConfig
from canary.constraints import parts_of
from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import name_of_environment
from canary.errors import CanaryError
from canary.host.references import describe
from canary.host_loop import HostTraining
from canary.identity import named
from canary.numerics.running_statistics import sane
from canary.rollout import CostAccount
from canary.training import Trainer, TrainingState, init_training, train_chunk, train_iteration
from canary.types import Metrics, Terms


def make_trainer(config: RunConfig) -> Trainer:
    environment, training = config.environment, config.training
    on_cpu = jax.default_backend() == "cpu"
    kinds = tuple(part.kind for part in parts_of(config.constraint))
    task = Task(
        input_size=environment.observation_size + CostAccount.SIZE - 1 + len(kinds),
        action_space=environment.action_space,
        horizon=environment.horizon,
        constraint=kinds[0] if len(kinds) == 1 else kinds,
        # Merging branches on the data; a vectorised group of seeds would compute both branches.
        merge_capacity=training.merge_capacity if on_cpu and training.seeds_per_device <= 1 else 0,
    )
    trainer = Trainer(
        environment=environment,
        algorithm=config.algorithm.make(task),
        cost_discount=config.algorithm.estimation.cost_discount,
        clock=config.clock,
        environments=training.environments,
        rollout_length=training.rollout_length,
        stagger=training.stagger,
    )
    is_host = isinstance(environment, GymnasiumEnvironment)  # cannot be traced
    if type(config.algorithm) not in ALGORITHMS.values() and not is_host:
        _check_own_method(config, trainer)
    return trainer


def _check_own_method(config: RunConfig, trainer: Trainer) -> None:
    """Trace an update of a user's method, to report its mistakes before anything is computed."""

    def metrics() -> Metrics:
        state = init_training(trainer, make_terms(config), 0)
        return train_iteration(trainer, state)[1][0]

    name = config.algorithm_name
    try:
        shapes = {metric: value.shape for metric, value in jax.eval_shape(metrics).items()}
    except Exception as error:
        raise CanaryError(f"An update of {name} failed: {describe(error)}.") from error
    if odd := [metric for metric, shape in shapes.items() if shape]:
        raise CanaryError(
            f"The metric {odd[0]!r} of {name} has the shape {shapes[odd[0]]}; a metric is a single "
            "number per update."
        )


def make_terms(config: RunConfig) -> Terms:
    """The terms of a run at its start."""
    limit, share = jnp.float32(config.constraint.limit), jnp.float32(config.constraint.share)
    return Terms(limit, share, jnp.int32(config.training.updates), jnp.int32(0))


def make_groups(config: RunConfig) -> "SeedGroups":
    training = config.training
    trainer, terms = make_trainer(config), make_terms(config)
    return SeedGroups(trainer, terms, training.seeds, training.seeds_per_device, training.chunk)


class CompiledTraining:
    """Training on a JAX environment: a program for a chunk of updates of one seed or, if `together`,
    of a group of seeds along a first axis. `HostTraining` has the same functions."""

    def __init__(
        self, trainer: Trainer, options: dict[str, Any] | None, size: int, *, together: bool
    ):
        init: Callable[..., Any] = partial(init_training, trainer)
        chunk: Callable[..., Any] = partial(train_chunk, trainer, size=size)
        self.structure = lambda terms: jax.eval_shape(init, terms, jnp.int32(0))
        if together:
            init, chunk = jax.vmap(init, (None, 0)), jax.vmap(chunk, (0, None))
        self.init = jax.jit(init, compiler_options=options)
        # The states before a chunk are not donated to it: they are saved if it fails.
        self.chunk = jax.jit(chunk, compiler_options=options)

    def revive(self, state: TrainingState) -> tuple[TrainingState, int]:
        return state, 0


class SeedGroups:
    """The training states of all seeds, and the program that advances them."""

    def __init__(
        self,
        trainer: Trainer,
        terms: Terms,
        seeds: tuple[int, ...],
        per_device: int,
        size: int,
    ):
        devices = jax.devices()
        on_cpu = devices[0].platform == "cpu"
        # XLA's own thread pool under concurrent programs can deadlock; each seed has a thread.
        options = {"xla_cpu_multi_thread_eigen": False} if on_cpu else None
        per_group = per_device or (1 if on_cpu else -(-len(seeds) // len(devices)))
        if isinstance(trainer.environment, GymnasiumEnvironment):
            self._training, per_group = HostTraining(trainer, options), 1
        else:
            self._training = CompiledTraining(trainer, options, size, together=per_group > 1)
        self._groups = [
            seeds[start : start + per_group] for start in range(0, len(seeds), per_group)
        ]
        self._together = per_group > 1
        self._devices = [devices[index % len(devices)] for index in range(len(self._groups))]
        self._pool = ThreadPoolExecutor((os.cpu_count() or 1) if on_cpu else len(devices))
        self.trainer, self._terms = trainer, terms
        self._states: Sequence[TrainingState] = ()
        self._before: Sequence[TrainingState] = ()

    def start(self) -> None:
        """Fresh states for all seeds."""

        def init(group: tuple[int, ...], device: Any) -> TrainingState:
            seeds = np.asarray(group, np.int32)
            return self._training.init(self._terms, jax.device_put(self._of_group(seeds), device))

        self._states = list(self._pool.map(init, self._groups, self._devices))

    def _of_group(self, array: Any) -> Any:
        """What is stacked over the seeds of a group, as its program takes it."""
        return array if self._together else array[0]

    def _join(self, arrays: Sequence[Any]) -> np.ndarray:
        """One array over all seeds from those of the groups."""
        found = [np.asarray(array) for array in arrays]
        return np.concatenate(found) if self._together else np.stack(found)

    def structure(self) -> PyTree:
        """Shapes and types of the stacked states, without computing them."""
        count = sum(map(len, self._groups))
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype),
            self._training.structure(self._terms),
        )

    def restore(self, stacked: PyTree) -> None:
        """Continue from states stacked along their first axis, one entry per seed."""
        bounds = np.cumsum([0, *map(len, self._groups)])
        self._states = [
            jax.device_put(
                jax.tree.map(lambda leaf, a=a, b=b: self._of_group(leaf[a:b]), stacked), device
            )
            for a, b, device in zip(bounds[:-1], bounds[1:], self._devices, strict=True)
        ]

    def stacked(self) -> PyTree:
        """All states along a first axis of seeds, on the host."""

        def joined(*leaves: jax.Array) -> Any:
            if not jax.dtypes.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
                return self._join(leaves)
            data = self._join([jax.random.key_data(leaf) for leaf in leaves])
            return jax.random.wrap_key_data(
                jnp.asarray(data), impl=str(jax.random.key_impl(leaves[0]))
            )

        return jax.tree.map(joined, *self._states)

    def compile(self) -> None:
        """Compile the program for chunks, so that its time can be measured apart from training."""
        for state in self._states:
            jax.block_until_ready(self._training.chunk(state, np.int32(0)))

    def revive(self) -> list[str]:
        """Replay host environments to the restored states; returns a sentence if some episodes
        could not be restored."""
        self._states, lost = zip(*map(self._training.revive, self._states), strict=True)
        name = name_of_environment(self.trainer.environment)
        note = (
            f"{sum(lost)} of {len(lost) * self.trainer.environments} episodes of {name} could not "
            "be restored: the same seed and actions led to other observations. New ones start, so "
            "the numbers of this run differ from those of one that never stopped."
        )
        return [note] if any(lost) else []

    def advance(self, count: int) -> PyTree:
        """`count` iterations of every seed; the records as numpy arrays [seed, iteration, ...]."""

        def run(state: TrainingState) -> Any:
            return jax.block_until_ready(self._training.chunk(state, np.int32(count)))

        results = list(self._pool.map(run, self._states))
        self._before, self._states = self._states, [state for state, _ in results]
        return jax.tree.map(
            lambda *leaves: self._join(leaves)[:, :count], *(record for _, record in results)
        )

    def unsound(self) -> str | None:
        """A sentence about the first seed with a weight or statistic that is not finite."""
        for seeds, state in zip(self._groups, self._states, strict=True):
            for part, tree in {
                "policy": state.learner.policy,
                "critics": state.learner.critics,
                "statistics": state.statistics,
            }.items():
                for name, array in named(part, tree).items():
                    good = sane(array) if part == "policy" else np.isfinite(array)
                    if not (good := good.reshape(len(seeds), -1).all(1)).all():
                        return (
                            "Training gave numbers that are not finite, or absurdly large: "
                            f"{name} of seed {seeds[int(np.argmin(good))]}. Large costs and rewards "
                            "do that (`canary check-env` looks at them), and large learning rates."
                        )
        return None

    def rewind(self) -> None:
        """Back to the states before the last `advance`."""
        self._states = self._before

    def close(self) -> None:
        self._pool.shutdown()
