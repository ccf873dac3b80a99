"""Insulin for virtual patients with type-1 diabetes: P(more than an hour below 70 mg/dL in a day)
<= 0.05. A benchmark, not medical advice.

    pip install --no-deps simglucose
    canary train --env examples.glucose:Glucose
    canary certify --shift patient=16,17,18,19,20

The body is the model of the UVa/Padova simulator (13 states; Dalla Man et al. 2014, Kovatchev et
al. 2009) as the package simglucose has it. The parameters of its 30 patients are read from that
package: 1-10 are adolescents, 11-20 adults, 21-30 children.

A day begins at 4:00, before every meal, and has 288 decisions: an insulin rate for five minutes.
Meals come at random times, in random amounts; the patient announces each with an estimate of its
carbohydrates. Glucose is seen through a sensor, with lag and noise.

    reward = 100/288 if 70 <= glucose <= 180, so that J is the time in range in percent
    cost   = minutes below 70
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import canary
from canary import Continuous, EnvironmentState

LOW, HIGH = 70.0, 180.0  # mg/dL
MINUTES = 5  # of a decision
START = 4 * 60  # when a day begins, in minutes after midnight
EATING = 5.0  # g of carbohydrates a minute
TRAINED = (11, 12, 13, 14, 15)  # the patients of whom training draws one a day
# Breakfast, lunch, dinner, each with a snack after it: probability, hours of the day (earliest,
# usual, latest, deviation) and grams (mean, deviation), as in simglucose's random scenario.
MEALS = np.array([
    (0.95, 5, 7, 9, 1, 45, 10), (0.3, 9, 9.5, 10, 0.5, 10, 5),
    (0.95, 10, 12, 14, 1, 70, 10), (0.3, 14, 15, 16, 0.5, 10, 5),
    (0.95, 16, 18, 20, 1, 80, 10), (0.3, 20, 21.5, 23, 0.5, 10, 5),
])  # fmt: skip


@cache
def patients() -> dict[str, np.ndarray]:
    """Every parameter of simglucose's patients, by its name; `start` has the 13 states at rest."""
    package = find_spec("simglucose")
    if package is None or package.origin is None:
        raise canary.CanaryError(
            "The parameters of the virtual patients come with simglucose, which is not installed: "
            "pip install --no-deps simglucose"
        )
    folder = Path(package.origin).parent / "params"
    rows = list(csv.DictReader((folder / "vpatient_params.csv").read_text().splitlines()))
    therapy = list(csv.DictReader((folder / "Quest.csv").read_text().splitlines()))
    names = [name for name in rows[0] if name != "Name" and not name.startswith("x0_")]
    start = [[float(row[f"x0_{state:2}"]) for state in range(1, 14)] for row in rows]
    return (
        {name: np.array([float(row[name]) for row in rows]) for name in names}
        | {name: np.array([float(row[name]) for row in therapy]) for name in ("CR", "CF")}
        | {"start": np.array(start)}
    )


def parameters(patient):
    """Those of one patient, counted from 0."""
    names = [name for name in patients() if name != "start"]
    table = np.stack([patients()[name] for name in names], axis=1)
    row = jnp.asarray(table, jnp.float32)[patient]
    return {name: row[column] for column, name in enumerate(names)}


def change(x, p, eaten, insulin, meal):
    """dx/dt of the 13 states, for a patient who eats so many mg and gets so many pmol/kg a minute.

    `meal` is all that was in the stomach since the last meal began, in mg.
    """
    solid, liquid, gut, plasma, tissue, i_plasma, action, i_1, i_2, i_liver, s_1, s_2, sensed = x
    stomach, full = solid + liquid, jnp.maximum(meal, 1e-3)
    emptying = p["kmin"] + (p["kmax"] - p["kmin"]) / 2 * (
        jnp.tanh(2.5 / (full * (1 - p["b"])) * (stomach - p["b"] * full))
        - jnp.tanh(2.5 / (full * p["d"]) * (stomach - p["d"] * full))
        + 2
    )
    emptying = jnp.where(meal > 0, emptying, p["kmax"])
    appearing = p["f"] * p["kabs"] * gut / p["BW"]
    produced = jnp.maximum(p["kp1"] - p["kp2"] * plasma - p["kp3"] * i_2, 0)
    excreted = p["ke1"] * jnp.maximum(plasma - p["ke2"], 0)
    used = (p["Vm0"] + p["Vmx"] * action) * tissue / (p["Km0"] + tissue)
    level = i_plasma / p["Vi"]
    exchange = p["k1"] * plasma - p["k2"] * tissue
    slopes = [
        eaten - p["kmax"] * solid,
        p["kmax"] * solid - emptying * liquid,
        emptying * liquid - p["kabs"] * gut,
        produced + appearing - p["Fsnc"] - excreted - exchange,
        exchange - used,
        -(p["m2"] + p["m4"]) * i_plasma + p["m1"] * i_liver + p["ka1"] * s_1 + p["ka2"] * s_2,
        p["p2u"] * (level - p["Ib"] - action),
        p["ki"] * (level - i_1),
        p["ki"] * (i_1 - i_2),
        p["m2"] * i_plasma - (p["m1"] + p["m30"]) * i_liver,
        insulin - (p["ka1"] + p["kd"]) * s_1,
        p["kd"] * s_1 - p["ka2"] * s_2,
        p["ksc"] * (plasma - sensed),
    ]
    signed = (0, 1, 2, 6, 7, 8)  # the model holds the other states where they fall below zero
    return jnp.stack(
        [s if i in signed else jnp.where(x[i] >= 0, s, 0) for i, s in enumerate(slopes)]
    )


class Mouth(NamedTuple):
    """What is being eaten."""

    waiting: jax.Array
    """g on the plate."""
    eating: jax.Array
    before: jax.Array
    """mg in the stomach when the last meal began."""
    eaten: jax.Array
    """g of it so far."""


def minute(x, mouth, p, served, insulin):
    """The body and the mouth a minute later, with `served` g more on the plate (midpoint rule)."""
    plate = mouth.waiting + served
    bite = jnp.minimum(plate, EATING)
    begins = (bite > 0) & ~mouth.eating
    before = jnp.where(begins, x[0] + x[1], mouth.before)
    eaten = jnp.where(begins, 0, mouth.eaten) + bite
    inputs = (p, 1000 * bite, insulin, before + 1000 * eaten)
    x = x + change(x + change(x, *inputs) / 2, *inputs)
    return x, Mouth(plate - bite, bite > 0, before, eaten)


class Day(NamedTuple):
    patient: jax.Array
    sensitivity: jax.Array
    """To insulin, on this day; 1 is the patient's usual one."""
    meal_times: jax.Array
    """Minutes from the beginning of the day; after its end where a meal is skipped."""
    meal_sizes: jax.Array
    """g"""
    estimates: jax.Array
    """g, as the patient announces them."""
    body: jax.Array
    mouth: Mouth
    drift: jax.Array
    """Relative error of the sensor."""
    readings: jax.Array
    """Of the sensor in the last half hour, the newest first."""
    insulin_on_board: jax.Array
    """Above the basal rate, in hours of it."""
    carbs_on_board: jax.Array
    """In hours of basal rate that they need."""


@dataclass(frozen=True, kw_only=True)
class Glucose:
    patient: int = 0
    """1 to 30; 0 draws one of the training's adults every day."""
    most: float = 16.0
    """Largest insulin rate, in basal rates of the patient."""
    meals: float = 1.0
    """Scale of all meals."""
    misjudged: float = 0.2
    """Relative deviation of the announced carbohydrates."""
    noise: float = 0.08
    """Relative deviation of the sensor."""
    variability: float = 0.15
    """Deviation of the logarithm of a day's sensitivity to insulin."""

    horizon = 24 * 60 // MINUTES
    observation_size = 5
    normalise_observation = True
    action_space = Continuous(1)
    largest_step_cost = float(MINUTES)

    def __post_init__(self):
        if self.patient not in range(31):
            raise canary.CanaryError(f"patient must be 0 to 30, not {self.patient}.")
        patients()

    @property
    def default_constraint(self) -> canary.Chance:
        return canary.Chance(limit=60.0, epsilon=0.05)

    def reset(self, key):
        who, rest = jax.random.split(key)
        chosen = jnp.asarray([self.patient] if self.patient else TRAINED)
        return self.morning(jax.random.choice(who, chosen), rest)

    def morning(self, patient, key):
        """The beginning of a day of a patient."""
        patient = patient - 1
        when, much, judged, taken, rest = jax.random.split(key, 5)
        chance, first, usual, last, spread, grams, deviation = jnp.asarray(MEALS.T, jnp.float32)
        hour = usual + spread * jax.random.truncated_normal(
            when, (first - usual) / spread, (last - usual) / spread
        )
        eaten = jax.random.uniform(taken, chance.shape) < chance
        times = jnp.where(eaten, jnp.round(60 * hour) - START, jnp.inf)
        sizes = self.meals * jnp.maximum(
            grams + deviation * jax.random.normal(much, grams.shape), 1
        )
        error = jax.random.normal(judged, grams.shape)
        noises = jax.random.normal(rest, (3,))
        scale = jnp.ones(13).at[jnp.array([3, 4, 12])].set(1 + 0.1 * jnp.clip(noises[0], -2, 2))
        body, zero = scale * jnp.asarray(patients()["start"], jnp.float32)[patient], jnp.zeros(())
        drift = self.noise * noises[1]
        day = Day(
            patient=patient,
            sensitivity=jnp.exp(self.variability * noises[2]),
            meal_times=times,
            meal_sizes=sizes,
            estimates=sizes * jnp.clip(1 + self.misjudged * error, 0.3, 2),
            body=body,
            mouth=Mouth(zero, jnp.zeros((), bool), zero, zero),
            drift=drift,
            readings=jnp.full(7, (1 + drift) * body[12] / parameters(patient)["Vg"]),
            insulin_on_board=zero,
            carbs_on_board=zero,
        )
        return self._state(day, zero, zero, jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        day: Day = state.inner
        p = parameters(day.patient)
        p["kp1"] += (day.sensitivity - 1) * p["kp3"] * p["Ib"]  # at the basal rate all stays
        p["kp3"], p["Vmx"] = day.sensitivity * p["kp3"], day.sensitivity * p["Vmx"]
        rate = self.rate(action)
        began = MINUTES * state.time

        def next_minute(carry, after):
            x, mouth = carry
            served = jnp.where(day.meal_times == began + after, day.meal_sizes, 0).sum()
            x, mouth = minute(x, mouth, p, served, rate * p["u2ss"])
            return (x, mouth), x[3] / p["Vg"]

        (body, mouth), glucose = jax.lax.scan(
            next_minute, (day.body, day.mouth), jnp.arange(MINUTES)
        )
        kept = 0.9  # of the sensor's error, after five minutes
        drift = kept * day.drift + (1 - kept**2) ** 0.5 * self.noise * jax.random.normal(key)
        reading = jnp.clip((1 + drift) * body[12] / p["Vg"], 40, 400)
        started = (day.meal_times >= began) & (day.meal_times < began + MINUTES)
        announced = jnp.where(started, day.estimates, 0).sum()
        hourly = 60 * p["u2ss"] * p["BW"] / 6000  # basal, in units of insulin
        after = day._replace(
            body=body,
            mouth=mouth,
            drift=drift,
            readings=jnp.concatenate([reading[None], day.readings[:-1]]),
            insulin_on_board=day.insulin_on_board * jnp.exp(-MINUTES / 120)
            + (rate - 1) * MINUTES / 60,
            carbs_on_board=day.carbs_on_board * jnp.exp(-MINUTES / 60)
            + announced / p["CR"] / hourly,
        )
        reward = 100 / self.horizon * ((glucose >= LOW) & (glucose <= HIGH)).mean()
        cost = (glucose < LOW).sum().astype(jnp.float32)
        return self._state(after, reward, cost, state.time + 1)

    def rate(self, action):
        """The insulin rate of an action in [-1, 1], in basal rates: none, 1 at 0, the most at 1."""
        return (1 + jnp.clip(action[0], -1.0, 1.0)) ** np.log2(self.most)

    def _state(self, day, reward, cost, time):
        now, quarter, half = day.readings[0], day.readings[3], day.readings[6]
        seen = [now, now - quarter, now - half, day.insulin_on_board, day.carbs_on_board]
        return EnvironmentState(
            inner=day,
            observation=jnp.stack(seen),
            reward=reward,
            cost=cost,
            terminated=jnp.zeros((), bool),
            truncated=time >= self.horizon,
            time=time,
        )


def main(total_steps: int = 1_000_000, others: str = "16,17,18,19,20", **how) -> canary.Run:
    run = canary.train(Glucose(), seeds=2, total_steps=total_steps, **how)
    print(run.certify(shift=f"patient={others}")["sentence"])
    return run


if __name__ == "__main__":
    main()
