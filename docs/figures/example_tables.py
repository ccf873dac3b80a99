"""The tables and the figure of docs/examples/glucose.md and drawdown.md:

`python docs/figures/example_tables.py glucose RUN SEED` prints the first and writes
docs/images/glucose.png; `... drawdown RUN SEED` prints the second. P and J of a seed's policy beside
simple controllers, on fresh episodes.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from examples.drawdown import Drawdown
from examples.glucose import HIGH, LOW, MINUTES, START, TRAINED, Glucose, parameters

import canary
from canary.exporting.trained_policy import TrainedPolicy
from canary.reporting.figures import BLUE, GREEN, GREY, RED, canvas, save
from canary.rollout import policy_inputs

IMAGE = Path(__file__).parents[1] / "images" / "glucose.png"


def learned(policy: TrainedPolicy):
    """What a trained policy does."""

    def act(which, state, spent, key):
        pace = policy.account.pace(state.time, 1.0)
        seen = state.observation, spent, pace, policy.account, policy.statistics
        return policy.policy(policy_inputs(*seen)).sample(key)

    return act


def play(environment, reset, act, each, episodes, watch=lambda state: ()):
    """Return, cost and what is watched, of episodes for `each` of some patients or actions, in one
    program."""

    def episode(which, key):
        def step(carry, key):
            state, spent = carry
            key_act, key_step = jax.random.split(key)
            after = environment.step(state, act(which, state, spent, key_act), key_step)
            return (after, spent + after.cost), (after.reward, after.cost, watch(after))

        key_reset, key_steps = jax.random.split(key)
        start = reset(which, key_reset), jnp.zeros(())
        keys = jax.random.split(key_steps, environment.horizon)
        _, (reward, cost, watched) = jax.lax.scan(step, start, keys)
        return reward.sum(), cost.sum(), watched

    keys = jax.random.split(jax.random.key(0), episodes)
    played = jax.jit(jax.vmap(jax.vmap(episode, (None, 0)), (0, None)))(jnp.asarray(each), keys)
    return jax.tree.map(np.asarray, played)


def cells(reward: np.ndarray, cost: np.ndarray, limit: float) -> list[str]:
    """J and P, a cell for each row."""
    return [f"{r.mean():.1f} / {(c > limit).mean():.3f}" for r, c in zip(reward, cost, strict=True)]


def print_table(head: list[str], rows: list[list[str]]) -> None:
    for row in (head, ["---"] * len(head), *rows):
        print(f"| {' | '.join(row)} |")


def glucose(run: canary.Run, seed: int) -> None:
    environment, patients = Glucose(), [*range(11, 21), *range(1, 11)]
    exponent = np.log2(environment.most)

    policy = learned(run.policy(seed))

    def calculator(day):
        """Basal rate, and for a meal what the patient's ratio says, as fast as the pump can."""
        missing = jnp.maximum(day.carbs_on_board - day.insulin_on_board, 0)  # hours of basal rate
        rate = jnp.clip(1 + missing * 60 / MINUTES, 0, environment.most)
        return rate[None] ** (1 / exponent) - 1

    def act(which, state, spent, key):
        chosen = [policy(which, state, spent, key), jnp.zeros(1), calculator(state.inner)]
        return jnp.stack(chosen)[which[1]]

    def reset(which, key):
        return environment.morning(which[0], key)

    def level(state):
        return state.inner.body[3] / parameters(state.inner.patient)["Vg"]

    controllers = ["policy", "constant basal rate", "bolus calculator"]
    each = [(patient, which) for patient in patients for which in range(len(controllers))]
    reward, cost, levels = play(environment, reset, act, each, 500, level)
    kinds = ("adolescent", "adult", "child")
    names = [
        f"{kinds[(patient - 1) // 10]} {patient}{', trained on' if patient in TRAINED else ''}"
        for patient in patients
    ]
    texts = np.reshape(cells(reward, cost, 60.0), (len(patients), -1)).tolist()
    rows = [[name, *row] for name, row in zip(names, texts, strict=True)]
    print_table(["patient", *controllers], rows)

    with canvas(1, 1, (7, 3)) as (figure, grid):
        axes = grid[0, 0]
        hours = (START + MINUTES * np.arange(1, environment.horizon + 1)) / 60
        axes.axhspan(LOW, HIGH, color=GREEN, alpha=0.1, linewidth=0)
        axes.axhline(LOW, color=RED, linestyle="--", linewidth=1)
        for which, colour in ((0, BLUE), (1, GREY)):
            course = levels[each.index((16, which))]
            low, median, high = np.quantile(course, (0.05, 0.5, 0.95), axis=0)
            axes.plot(hours, median, color=colour, label=controllers[which])
            axes.fill_between(hours, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel="hour of the day", ylabel="glucose (mg/dL)", xlim=(4, 28), ylim=(40, 400))
        axes.set_xticks(range(4, 29, 4), [str(hour % 24) for hour in range(4, 29, 4)])
        axes.legend(loc="upper left")
        save(figure, IMAGE)


def drawdown(run: canary.Run, seed: int) -> None:
    policy, shares = learned(run.policy(seed)), [0.25, 0.4, 0.5, 0.75, 1.0]
    each = [-1.0, *shares]  # -1 stands for the policy
    names = ["policy", *(f"{share:.0%} in shares" for share in shares[:-1]), "buy and hold"]
    markets = {(0, 0): "S&P 500, 1999-2013", (0, 1): "S&P 500, 2014-2018"}
    markets |= {(1, 0): "Nasdaq, 1999-2013", (1, 1): "Nasdaq, 2014-2018"}

    def act(which, state, spent, key):
        return jnp.where(which < 0, policy(which, state, spent, key), 2 * which - 1)

    columns = []
    for index, held_out in markets:
        environment = Drawdown(index=index, held_out=held_out)

        def reset(which, key, market=environment):
            return market.reset(key)

        reward, cost, _ = play(environment, reset, act, each, 4000)
        columns.append(cells(reward, cost, 20.0))
    rows = [list(row) for row in zip(names, *columns, strict=True)]
    print_table(["", *markets.values()], rows)


if __name__ == "__main__":
    what, place, seed = sys.argv[1:]
    environment, make = {"glucose": (Glucose(), glucose), "drawdown": (Drawdown(), drawdown)}[what]
    make(canary.load(place, environment), int(seed))
