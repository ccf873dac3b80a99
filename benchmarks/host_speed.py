"""The rollout of a Gymnasium environment against a plain Python loop over the same environments.

    python -m benchmarks.host_speed [--envs Pendulum-v1 CartPole-v1 Ant-v5] [--steps 200]

The plain loop steps Gymnasium's SyncVectorEnv with actions drawn beforehand, resets what is done in
the same step, asks the cost of every step, and keeps observations, rewards and costs. The rollout
is that of training (`HostTraining.collect`): it resets every episode with a seed of its own, and
keeps the actions and the costs spent. "adapter" is the rollout without its policy, with actions
drawn beforehand like those of the plain loop. They take turns, and the best round of each counts.
On a busy machine, --processor-time counts the time of this process alone.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np

import canary
from canary.config.config import make_config
from canary.environments import from_gymnasium
from canary.host_loop import HostTraining
from canary.runs.devices import prepare_devices
from canary.runs.seeds import make_terms, make_trainer

LANES = 16


def no_cost(before, action, after, info):
    return 0.0


def plain_loop(name: str, steps: int) -> Callable[[], None]:
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


def rollouts(name: str, steps: int) -> list[Callable[[], None]]:
    """The same for rollouts of training, without and with a policy."""
    environment = from_gymnasium(name, cost=no_cost)
    settings = (f"training.environments={LANES}", f"training.rollout_length={steps}")
    config = make_config(environment, "ppo", canary.Chance(1.0, 0.1), "fast", settings, seeds=(0,))
    training = HostTraining(make_trainer(config), {"xla_cpu_multi_thread_eigen": False})
    state = training.init(make_terms(config), jnp.int32(0))
    _, given, lanes = training.collect(state)  # compiles, too
    state, with_policy = replace(state, lanes=lanes), training._act

    def play(act: Callable[..., Any]) -> None:
        nonlocal state
        training._act = act
        state = replace(state, lanes=training.collect(state)[-1])

    def drawn(*_: Any) -> Callable[..., Any]:
        actions = iter(given)
        return lambda *_: next(actions)

    return [lambda: play(drawn), lambda: play(with_policy)]


def measure(name: str, steps: int, rounds: int, clock: Callable[[], float]) -> list[float]:
    """Steps of all lanes per second: the plain loop, the adapter, and a rollout."""
    players = [plain_loop(name, steps), *rollouts(name, steps)]
    best = [np.inf] * len(players)
    for _ in range(rounds):
        for index, play in enumerate(players):
            began = clock()
            play()
            best[index] = min(best[index], clock() - began)
    return [LANES * steps / seconds for seconds in best]


def main(
    envs: tuple[str, ...] = ("CartPole-v1", "Pendulum-v1", "Ant-v5"),
    steps: int = 200,
    rounds: int = 5,
    processor_time: bool = False,
) -> None:
    prepare_devices()
    clock = time.process_time if processor_time else time.perf_counter
    print(
        f"{'environment':<14}{'plain loop':>12}{'adapter':>12}{'ratio':>7}{'rollout':>12}{'ratio':>7}"
        f"   steps/s, {LANES} lanes"
    )
    for name in envs:
        plain, adapter, rollout = measure(name, steps, rounds, clock)
        print(
            f"{name:<14}{plain:>12,.0f}{adapter:>12,.0f}{adapter / plain:>7.2f}"
            f"{rollout:>12,.0f}{rollout / plain:>7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
