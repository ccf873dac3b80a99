"""Host environments through the adapter against a plain Python loop over the same environments, 16 lanes.

    python -m benchmarks.host_speed [--envs Pendulum-v1 CartPole-v1 Ant-v5] [--steps 200] [--rounds 5]

The plain loop is Gymnasium's SyncVectorEnv with actions drawn beforehand: no policy, no record. Ours is a rollout as training
makes it: policy, cost, spent cost, resets and the record of every step, inside one compiled program. The two take turns, and
the best round of each counts, for other work on the machine only slows them down.
"""

import argparse
import time

import gymnasium
import jax
import numpy as np

from canary.environments import from_gymnasium
from canary.networks import make_policy
from canary.rollout import CostAccount, collect, start_lanes

LANES = 16


def no_cost(before, action, after, info):
    return 0.0


def plain_loop(name: str, steps: int):
    """A function that steps the vectorised environments `steps` times."""
    vector = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(name)] * LANES)
    vector.reset(seed=0)
    vector.action_space.seed(0)
    actions = [vector.action_space.sample() for _ in range(steps)]

    def play() -> None:
        for action in actions:
            vector.step(action)

    return play


def through_adapter(name: str, steps: int, workers: int | None):
    """A function that collects a rollout of `steps` steps, and the environment."""
    environment = from_gymnasium(name, cost=no_cost, workers=workers)
    size = environment.observation_size + CostAccount.SIZE
    policy = make_policy(jax.random.key(0), size, environment.action_space, (64, 64))
    program = jax.jit(
        lambda lanes, key: collect(environment, CostAccount(1.0, 1.0), policy, lanes, None, key, steps)
    )
    lanes = jax.jit(lambda key: start_lanes(environment, LANES, key, stagger=True))(jax.random.key(1))
    count = 0

    def play() -> None:
        nonlocal lanes, count
        count += 1
        lanes, rollout, _ = jax.block_until_ready(program(lanes, jax.random.key(count)))
        if environment.failure() is not None or not np.isfinite(rollout.reward).all():
            raise RuntimeError("the environment failed")

    play()  # compiles
    return play, environment


def measure(name: str, steps: int, rounds: int, workers: int | None) -> tuple[float, float]:
    """Steps of all lanes per second: the plain loop, and ours."""
    ours, environment = through_adapter(name, steps, workers)
    players = plain_loop(name, steps), ours
    best = [np.inf, np.inf]
    for _ in range(rounds):
        for index, play in enumerate(players):
            began = time.perf_counter()
            play()
            best[index] = min(best[index], time.perf_counter() - began)
    environment.close()
    plain, mine = (LANES * steps / seconds for seconds in best)
    return plain, mine


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
    options = parser.parse_args()
    print(f"{'environment':<16}{'plain loop':>14}{'adapter':>14}{'ratio':>8}   steps/s, {LANES} lanes")
    for name in options.envs:
        plain, ours = measure(name, options.steps, options.rounds, options.workers)
        print(f"{name:<16}{plain:>14,.0f}{ours:>14,.0f}{ours / plain:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
