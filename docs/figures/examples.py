"""The tables and the figure of docs/examples/glucose.md and drawdown.md:

python docs/figures/examples.py glucose RUN SEED       prints the table, writes docs/images/glucose.png
python docs/figures/examples.py drawdown RUN SEED      prints the table
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from examples.drawdown import Drawdown
from examples.glucose import HIGH, LOW, MINUTES, START, TRAINED, Glucose, parameters

import canary
from canary.export.trained_policy import TrainedPolicy
from canary.reporting.figures import BLUE, GREEN, GREY, RED, STYLE
from canary.rollout import policy_inputs

IMAGE = Path(__file__).parents[1] / "images" / "glucose.png"
EPISODES = 1000


def learned(policy: TrainedPolicy):
    """What a trained policy does."""

    def act(which, state, spent, key):
        pace = policy.account.pace(state.time, 1.0)
        seen = state.observation, spent, pace, policy.account, policy.statistics
        return policy.policy(policy_inputs(*seen)).sample(key)

    return act


def play(environment, reset, act, each, watch=lambda state: ()):
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

    keys = jax.random.split(jax.random.key(0), EPISODES)
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

    def basal(which, state, spent, key):
        return jnp.zeros(1)

    def calculator(which, state, spent, key):
        """Basal rate, and for a meal what the patient's ratio says, as fast as the pump can."""
        day = state.inner
        missing = jnp.maximum(day.carbs_on_board - day.insulin_on_board, 0)  # hours of basal rate
        rate = jnp.clip(1 + missing * 60 / MINUTES, 0, environment.most)
        return rate[None] ** (1 / exponent) - 1

    def level(state):
        return state.inner.body[3] / parameters(state.inner.patient)["Vg"]

    controllers = {
        "policy": learned(run.policy(seed)),
        "constant basal rate": basal,
        "bolus calculator": calculator,
    }
    played = {
        name: play(environment, environment.morning, act, patients, level)
        for name, act in controllers.items()
    }
    columns = [cells(reward, cost, 60.0) for reward, cost, _ in played.values()]
    kinds = ("adolescent", "adult", "child")
    names = [
        f"{kinds[(patient - 1) // 10]} {patient}{', trained on' if patient in TRAINED else ''}"
        for patient in patients
    ]
    print_table(["patient", *played], [list(row) for row in zip(names, *columns, strict=True)])

    row = patients.index(16)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
        hours = (START + MINUTES * np.arange(1, environment.horizon + 1)) / 60
        axes.axhspan(LOW, HIGH, color=GREEN, alpha=0.1, linewidth=0)
        axes.axhline(LOW, color=RED, linestyle="--", linewidth=1)
        for name, colour in (("policy", BLUE), ("constant basal rate", GREY)):
            low, median, high = np.quantile(played[name][2][row], (0.05, 0.5, 0.95), axis=0)
            axes.plot(hours, median, color=colour, label=name)
            axes.fill_between(hours, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.set(xlabel="hour of the day", ylabel="glucose (mg/dL)", xlim=(4, 28), ylim=(40, 400))
        axes.set_xticks(range(4, 29, 4), [str(hour % 24) for hour in range(4, 29, 4)])
        axes.legend(loc="upper left")
        figure.savefig(IMAGE, dpi=110)


def drawdown(run: canary.Run, seed: int) -> None:
    shares = [0.25, 0.4, 0.5, 0.75, 1.0]
    rows = {name: [] for name in ("policy", *(f"{share:.0%} in shares" for share in shares))}
    rows["100%: buy and hold"] = rows.pop("100% in shares")
    markets = {(0, 0): "S&P 500, 1999-2013", (0, 1): "S&P 500, 2014-2018"}
    markets |= {(1, 0): "Nasdaq, 1999-2013", (1, 1): "Nasdaq, 2014-2018"}
    for index, held_out in markets:
        environment = Drawdown(index=index, held_out=held_out)

        def reset(which, key, environment=environment):
            return environment.reset(key)

        def constant(which, state, spent, key):
            return 2 * which[None] - 1

        reward, cost, _ = play(environment, reset, learned(run.policy(seed)), [0.0])
        column = cells(reward, cost, 20.0)
        reward, cost, _ = play(environment, reset, constant, shares)
        for row, cell in zip(rows.values(), column + cells(reward, cost, 20.0), strict=True):
            row.append(cell)
    print_table(["", *markets.values()], [[name, *row] for name, row in rows.items()])


if __name__ == "__main__":
    what, place, seed = sys.argv[1:]
    environment, make = {"glucose": (Glucose(), glucose), "drawdown": (Drawdown(), drawdown)}[what]
    make(canary.load(place, environment), int(seed))
