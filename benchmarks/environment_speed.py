"""Environment steps per second of every environment, and what MuJoCo costs: as ratios in one run on
one machine.

    python -m benchmarks.environment_speed     # about two minutes on two cores
    python -m benchmarks.environment_speed --mjx-steps 0

The programs are what a rollout does to its environments: random actions, a step of every lane, and
fresh resets in those steps in which some lane is done. Lanes start at random times of their
episodes, so resets come evenly. The bare loop is `mujoco.rollout` driven from Python, without JAX,
actions, observations or rewards.
"""

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from canary.environments import ENVIRONMENTS
from canary.environments.eco_ant import INITIAL_POSITION, EcoAnt
from canary.environments.physics import require
from canary.environments.protocol import Discrete, Environment

FEW, MANY = 20, 100  # parallel environments: those of one seed in the paper, and a large batch
REPEATS = 7


def rollout_program(environment: Environment, count: int, steps: int) -> Callable[[], Any]:
    """A call that plays `count` lanes for `steps` steps under random actions, and waits."""

    def play(states: Any, key: Any) -> tuple[Any, Any]:
        key_action, key_step, key_reset = jax.random.split(key, 3)
        space = environment.action_space
        if isinstance(space, Discrete):
            actions = jax.random.randint(key_action, (count,), 0, space.count)
        else:
            actions = jax.random.uniform(key_action, (count, space.size), minval=-1.0)
        moved = jax.vmap(environment.step)(states, actions, jax.random.split(key_step, count))
        done = moved.terminated | moved.truncated

        def restart() -> Any:
            fresh = jax.vmap(environment.reset)(jax.random.split(key_reset, count))
            return jax.vmap(lambda d, new, old: jax.tree.map(partial(jnp.where, d), new, old))(
                done, fresh, moved
            )

        following = jax.lax.cond(done.any(), restart, lambda: moved)
        return following, (moved.observation, moved.reward, moved.cost)

    def run(key: Any) -> Any:
        states = jax.vmap(environment.reset)(jax.random.split(key, count))
        times = jax.random.randint(key, (count,), 0, environment.horizon, states.time.dtype)
        states = eqx.tree_at(lambda state: state.time, states, times)
        return jax.lax.scan(play, states, jax.random.split(key, steps))[1]

    compiled = jax.jit(run).lower(jax.random.key(0)).compile()
    return lambda: jax.block_until_ready(compiled(jax.random.key(1)))


def bare_program(model: Any, count: int, steps: int, frame_skip: int) -> Callable[[], Any]:
    """The same ants under random actions in a plain loop over `mujoco.rollout`, with a thread per
    core."""
    mujoco, rollout = require("mujoco"), require("mujoco.rollout")
    threads = os.cpu_count() or 1
    pool = rollout.Rollout(nthread=threads)
    data = [mujoco.MjData(model) for _ in range(threads)]
    generator = np.random.default_rng(0)
    models, states = [model] * count, np.zeros((count, frame_skip, 1 + model.nq + model.nv))
    sensors = np.zeros((count, frame_skip, model.nsensordata))
    stance = np.concatenate([[0.0], INITIAL_POSITION, np.zeros(model.nv)])
    noise = np.zeros_like(stance)
    noise[1:16] = 0.1

    def run() -> None:
        now = stance + noise * generator.uniform(-1, 1, (count, len(stance)))
        for _ in range(steps):
            control = np.repeat(generator.uniform(-1, 1, (count, 1, model.nu)), frame_skip, axis=1)
            pool.rollout(
                models, data, now, control, skip_checks=True, nstep=frame_skip, state=states,
                sensordata=sensors, chunk_size=-(-count // threads),
            )  # fmt: skip
            now = np.ascontiguousarray(states[:, -1])

    return run


def seconds(program: Callable[[], Any]) -> float:
    began = time.perf_counter()
    program()
    return time.perf_counter() - began


def compare(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float, float]:
    """Median seconds of both, run in turns, and the median of how many times `one` is quicker."""
    one(), other()
    pairs = [(seconds(one), seconds(other)) for _ in range(REPEATS)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(b / a for a, b in pairs),
    )


def show(what: str, environments: int, steps: int, seconds: float) -> None:
    speed = environments * steps / seconds
    print(f"{what:26s} {environments:4d} environments {speed:12,.0f} steps/s", flush=True)


def measure_environments(steps: int) -> None:
    """Every named environment with its default settings; the best of some calls after the first."""
    for name, kind in ENVIRONMENTS.items():
        # The others are quick, and should not be timed starting up
        length = steps if name == "EcoAnt" else 10 * steps
        program = rollout_program(kind(), FEW, length)
        program()
        show(name, FEW, length, min(seconds(program) for _ in range(REPEATS)))


def main(steps: int = 200, mjx_steps: int = 20) -> None:
    """Measure. MJX is slow on a CPU; 0 steps leave it out."""
    print(f"{os.cpu_count()} cores, JAX on {jax.default_backend()}; environment steps per second")
    measure_environments(steps)
    # No ant is reset in the bare loop, so none is here
    ant = EcoAnt(
        engine="native", terminate_when_unhealthy=False, terminate_when_empty=False, horizon=10**9
    )
    mine, bare, kept = compare(
        rollout_program(ant, MANY, steps), bare_program(ant.model, MANY, steps, ant.frame_skip)
    )
    show("EcoAnt native", MANY, steps, mine)
    show("bare mujoco.rollout loop", MANY, steps, bare)
    print(f"EcoAnt native / bare loop at {MANY} environments: {kept:.2f}")
    if mjx_steps:
        native = rollout_program(EcoAnt(engine="native"), FEW, steps)
        mjx = rollout_program(EcoAnt(engine="mjx"), FEW, mjx_steps)
        mine, theirs, quicker = compare(native, mjx)
        show("EcoAnt native", FEW, steps, mine)
        show("EcoAnt mjx", FEW, mjx_steps, theirs)
        ratio = quicker * steps / mjx_steps
        print(f"EcoAnt native / mjx at {FEW} environments: {ratio:.0f}")


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
