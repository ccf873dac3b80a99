"""Where the time of one training iteration goes, on one core: what the whole takes, and what it
takes without each part.

    python -m benchmarks.update_profile EcoAnt
    python -m benchmarks.update_profile PointGoal canary paper

A part costs what the iteration saves without it: critics fitted by one gradient step, conjugate
gradient stopped after one iteration, the line search after one attempt. Physics is the engine
alone, on the same number of environments and steps. Differences of a few tens of milliseconds are
noise.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.environment_speed import REPEATS
from canary.config.config import RunConfig, make_config
from canary.environments.protocol import Environment
from canary.numerics.moments import record_episodes
from canary.rollout import CostAccount, collect
from canary.runs.seeds import make_terms, make_trainer
from canary.training import TrainingState, init_training, train_iteration

WITHOUT = {
    "critics": ("algo.critic.epochs=1", "algo.critic.minibatches=1"),
    "Fisher products": ("algo.cg_iterations=1",),
    "line search": ("algo.backtracks=1",),
}


def single_threaded(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Processor seconds of the best call, as seeds train on a CPU, and the result."""
    compiled = jax.jit(function, compiler_options={"xla_cpu_multi_thread_eigen": False})
    times = []
    for _ in range(1 + REPEATS):
        began = time.process_time()
        result = jax.block_until_ready(compiled(*arguments))
        times.append(time.process_time() - began)
    return min(times[1:]), result


def physics_seconds(environment: Environment, state: TrainingState, steps: int) -> float:
    """The physics engine alone, if there is one: `steps` steps of all lanes under no control."""
    engine: Any = getattr(environment, "physics", None)
    if engine is None:
        return 0.0
    start = state.lanes.environment.inner.physics
    still = jnp.zeros((state.lanes.spent.shape[0], engine.model.nu))

    def play(start: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, now: jax.vmap(engine.step)(now, still), start)

    return single_threaded(play, start)[0]


def profile(env: str, algorithm: str, preset: str) -> dict[str, float]:
    """Milliseconds by part."""

    def configured(*overrides: str) -> RunConfig:
        return make_config(env, algorithm, preset=preset, overrides=overrides)

    trainer, terms = make_trainer(configured()), make_terms(configured())
    state = jax.jit(lambda: init_training(trainer, terms, 0))()
    _, state = single_threaded(
        lambda s: jax.lax.fori_loop(0, 3, lambda _, s: train_iteration(trainer, s)[0], s), state
    )
    key, length = jax.random.key(1), trainer.rollout_length

    def play(state: TrainingState) -> Any:
        arguments = state.learner.policy, state.lanes, state.statistics, key, length
        account = CostAccount(state.terms.limit, trainer.cost_discount)
        return collect(trainer.environment, account, *arguments)

    rollout_time, (_, rollout, _) = single_threaded(play, state)
    window = record_episodes(state.window, rollout.episodes)

    def update_time(*overrides: str) -> float:
        update = make_trainer(configured(*overrides)).algorithm.update
        return single_threaded(update, state.learner, rollout, window, state.terms, key)[0]

    physics, whole = physics_seconds(trainer.environment, state, length), update_time()
    parts = {name: whole - update_time(*overrides) for name, overrides in WITHOUT.items()}
    seconds = {"physics": physics, "rest of the rollout": rollout_time - physics, **parts}
    seconds["rest of the update"] = whole - sum(parts.values())
    seconds["all"] = rollout_time + whole
    return {name: 1000 * value for name, value in seconds.items()}


if __name__ == "__main__":
    env, algorithm, preset = (
        sys.argv[1:] + ["EcoAnt", "cantelli-cpo", "fast"][len(sys.argv) - 1 :]
    )[:3]
    for name, milliseconds in profile(env, algorithm, preset).items():
        print(f"{name:<22} {milliseconds:8.0f} ms")
