"""Host environments through the adapter against a plain Python loop over the same environments, 16
lanes.

    python -m benchmarks.host_speed [--envs Pendulum-v1 CartPole-v1 Ant-v5] [--steps 200] [--rounds
    5]

The plain loop steps Gymnasium's SyncVectorEnv with actions drawn beforehand, asks the cost of every
step, resets what is done in the same step, and keeps observations, rewards and costs. The adapter
does the same inside one compiled program; its resets have a seed each, and it keeps the actions and
the spent costs besides. A rollout, as training makes it, has the policy and the record of every
step on top. They take turns, and the best round of each counts, for other work on the machine only
slows them down. On a machine that is busy all the time --processor-time counts the time of this
process alone, which leaves out worker processes.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np

from canary.environments import from_gymnasium
from canary.environments.protocol import Discrete, Environment
from canary.networks import make_policy
from canary.rollout import CostAccount, Lane, advance, collect, restart, start_lanes

LANES = 16
ACCOUNT = CostAccount(1.0, 1.0)
Program = Callable[[Lane, Any], tuple[Lane, Any]]


def no_cost(before, action, after, info):
    return 0.0


def plain_loop(name: str, steps: int):
    """A function that steps the vectorised environments `steps` times."""
    vector = gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make(name)] * LANES,
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    before, _ = vector.reset(seed=0)
    vector.action_space.seed(0)
    actions = [vector.action_space.sample() for _ in range(steps)]
    seen = np.empty((steps, *before.shape), np.float32)
    rewards, costs = np.empty((steps, LANES), np.float32), np.empty((steps, LANES), np.float32)

    def play() -> None:
        nonlocal before
        for index, action in enumerate(actions):
            after, rewards[index], _, _, info = vector.step(action)
            last = after
            if "final_obs" in info:  # an object per lane, None where the episode goes on
                last = [
                    a if f is None else f for a, f in zip(after, info["final_obs"], strict=True)
                ]
            costs[index] = [no_cost(*each, info) for each in zip(before, action, last, strict=True)]
            seen[index] = before = after

    return play


def alone(environment: Environment, steps: int) -> Program:
    """Steps with actions that are given beforehand."""
    count, space = LANES, environment.action_space
    keys = jax.random.split(jax.random.key(2), steps)
    if isinstance(space, Discrete):
        actions = jax.random.randint(keys[0], (steps, count), 0, space.count)
    else:
        actions = jax.random.uniform(keys[0], (steps, count, space.size), minval=-1.0)

    def play(lanes: Lane, given: Any) -> tuple[Lane, Any]:
        action, key = given
        spread = jax.random.split(key, count)
        moved = jax.vmap(lambda lane, a, k: advance(environment, ACCOUNT, lane, a, k))(
            lanes, action, spread
        )
        done = moved.environment.terminated | moved.environment.truncated
        after = jax.lax.cond(
            done.any(), lambda: restart(environment, moved, done, key), lambda: moved
        )
        return after, moved.environment.reward

    return lambda lanes, key: jax.lax.scan(play, lanes, (actions, jax.random.split(key, steps)))


def rollout(environment: Environment, steps: int) -> Program:
    """Steps as training makes them."""
    size = environment.observation_size + CostAccount.SIZE
    policy = make_policy(jax.random.key(0), size, environment.action_space, (64, 64))

    def play(lanes: Lane, key: Any) -> tuple[Lane, Any]:
        lanes, record, _ = collect(environment, ACCOUNT, policy, lanes, None, key, steps)
        return lanes, record.reward

    return play


def player(environment: Any, program: Program) -> Callable[[], None]:
    """A function that runs the program, again and again from where it stands."""
    # As in training: the seeds are the unit of parallelism, not the operations.
    compiled = jax.jit(program, compiler_options={"xla_cpu_multi_thread_eigen": False})
    lanes = jax.jit(lambda key: start_lanes(environment, LANES, key, stagger=True))(
        jax.random.key(1)
    )
    count = 0

    def play() -> None:
        nonlocal lanes, count
        count += 1
        lanes, reward = jax.block_until_ready(compiled(lanes, jax.random.key(count)))
        if environment.host_failure() is not None or not np.isfinite(reward).all():
            raise RuntimeError("the environment failed")

    play()  # compiles
    return play


def measure(
    name: str,
    steps: int,
    rounds: int,
    workers: int | None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Steps of all lanes per second: the plain loop, the adapter alone, and a rollout."""
    # By its name: what is defined in a script that runs, no worker can import.
    cost = "benchmarks.host_speed:no_cost"
    environments = [from_gymnasium(name, cost=cost, workers=workers) for _ in range(2)]
    players = [plain_loop(name, steps)]
    players += [
        player(each, make(each, steps))
        for each, make in zip(environments, (alone, rollout), strict=True)
    ]
    best = [np.inf] * len(players)
    for _ in range(rounds):
        for index, play in enumerate(players):
            began = clock()
            play()
            best[index] = min(best[index], clock() - began)
    for each in environments:
        each.close()
    return [LANES * steps / seconds for seconds in best]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Host environments through the adapter against a plain loop."
    )
    parser.add_argument("--envs", nargs="+", default=["CartPole-v1", "Pendulum-v1", "Ant-v5"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--workers", type=int, default=None, help="worker processes (default: as many as pay)"
    )
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="processor time instead of wall-clock time; no workers",
    )
    options = parser.parse_args()
    clock, workers = time.perf_counter, options.workers
    if options.processor_time:
        clock, workers = time.process_time, 0
    print(
        f"{'environment':<14}{'plain loop':>12}{'adapter':>12}{'ratio':>7}{'rollout':>12}   "
        f"steps/s, {LANES} lanes"
    )
    for name in options.envs:
        plain, ours, training = measure(name, options.steps, options.rounds, workers, clock)
        print(
            f"{name:<14}{plain:>12,.0f}{ours:>12,.0f}{ours / plain:>7.2f}{training:>12,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
