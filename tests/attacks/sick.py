"""Sick environments: numbers that are none, at once or later, and episodes without an end. None
ends SATISFIED.

The sickness is a run-time value that the environment asks its host for, so all of them share one
program per algorithm.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import canary
from attacks.attack import Attack
from attacks.warm import warm
from canary.algorithms import ALGORITHMS
from canary.environments.protocol import ActionSpace, Continuous, Discrete, EnvironmentState
from canary.errors import CanaryError
from canary.runs import opening

FIELDS = ("cost", "reward", "observation")
NUMBERS = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "huge": 1e38}
TIMES = {"at once": 0, "in training": 3, "in certification": 1}
"""How often episodes start in health: the check of an environment does that once, and training once
more."""


class Sickness(NamedTuple):
    field: str
    number: str
    when: str

    @property
    def words(self) -> tuple[str, ...]:
        """Of which one must be in the sentence."""
        names = {"end": ("horizon",), "reward": ("reward", "return")}.get(self.field, (self.field,))
        return (*names, "numbers that are not finite")


SICKNESSES = [Sickness(*each) for each in product(FIELDS, NUMBERS, TIMES)]
SICKNESSES += [Sickness("end", "none", when) for when in TIMES]
# It has two kinds of networks
SMALL = {"cvar-cpo": ("algo.estimation.hidden=[4]", "algo.distribution.hidden=[4]")}
HEALTHY = Sickness("none", "none", "at once")
_now = {"sickness": HEALTHY, "healthy starts": 0}


def fall_ill(sickness: Sickness) -> None:
    """From now on or, if it is to be later, after so many starts in health."""
    opening._behaviour.cache_clear()  # whatever it did before, it is looked at again
    _now.update(sickness=sickness, **{"healthy starts": TIMES[sickness.when]})


def _ask(places: jax.Array) -> np.ndarray:
    """What is added to cost, reward and observation, and whether episodes end; asked at every start
    of episodes."""
    sickness = _now["sickness"] if _now["healthy starts"] <= 0 else HEALTHY
    _now["healthy starts"] -= 1
    added = [NUMBERS[sickness.number] if name == sickness.field else 0.0 for name in FIELDS]
    return np.broadcast_to(
        np.array([*added, sickness.field == "end"], np.float32), (*places.shape, 4)
    )


@dataclass(frozen=True)
class Sick:
    """A walk on a line with a cost at every other step; what ails it strikes at the third step of
    an episode."""

    discrete: bool = True
    horizon: int = 6
    observation_size: int = 2
    normalise_observation: bool = True

    @property
    def action_space(self) -> ActionSpace:
        return Discrete(2) if self.discrete else Continuous(1)

    def reset(self, key: jax.Array) -> EnvironmentState:
        place, zero, no = jax.random.normal(key), jnp.zeros(()), jnp.zeros((), bool)
        shape = jax.ShapeDtypeStruct((4,), jnp.float32)
        ailment = jax.pure_callback(_ask, shape, place, vmap_method="expand_dims")
        seen = jnp.stack([place, zero])
        return EnvironmentState(
            (place, ailment), seen, zero, zero, no, no, jnp.zeros((), jnp.int32)
        )

    def step(self, state: EnvironmentState, action: jax.Array, key: jax.Array) -> EnvironmentState:
        before, ailment = state.inner
        move = 2.0 * action - 1.0 if self.discrete else jnp.clip(action[0], -1, 1)
        place, time = before + 0.1 * move, state.time + 1
        cost, reward, seen = jnp.where(time == 3, ailment[:3], 0.0)
        over = (time >= self.horizon) & (ailment[3] == 0)
        return EnvironmentState(
            (place, ailment),
            jnp.stack([place, jnp.ones(())]) + seen,
            place + reward,
            1.0 * (time % 2) + cost,
            jnp.zeros((), bool),
            over,
            time,
        )


CASES = [
    (sickness, name, discrete)
    for discrete in (True, False)
    for name in ALGORITHMS
    for sickness in SICKNESSES
]


class SickEnvironments(Attack):
    """An honest policy would keep this limit with ease: whatever is certified SATISFIED was not
    looked at."""

    name, tries = "sick environments", len(CASES)

    def prepare(self, folder: Path) -> None:
        self._folder, self._healthy = folder, {}

    def close(self) -> None:
        fall_ill(HEALTHY)

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        sickness, algorithm, discrete = CASES[number]
        what = f"{' '.join(sickness)}, {algorithm}, {'discrete' if discrete else 'continuous'}"
        try:
            with warm(algorithm):
                if sickness.when == "in certification":
                    run = self._trained_in_health(algorithm, discrete)
                    fall_ill(sickness)
                else:
                    fall_ill(sickness)
                    run = self._train(algorithm, discrete)
                verdict = canary.certify(run, episodes=20)["verdict"]
        except CanaryError as error:
            return (
                None if any(word in str(error) for word in sickness.words) else f"{what}: {error}"
            )
        except Exception as error:
            return f"{what}: {type(error).__name__}: {error!s:.200}"
        return f"{what}: ended {verdict}"

    def _train(self, algorithm: str, discrete: bool) -> canary.Run:
        return canary.train(
            Sick(discrete), algorithm, canary.Chance(limit=100.0, epsilon=0.5), seeds=1, total_steps=400,
            overrides=(*SMALL.get(algorithm, ("algo.hidden=[4]",)), "training.environments=4", "training.rollout_length=25"),
            out=self._folder, quiet=True,
        )  # fmt: skip

    def _trained_in_health(self, algorithm: str, discrete: bool) -> canary.Run:
        """One for all sicknesses that come later; it is SATISFIED, as it should be."""
        if (algorithm, discrete) not in self._healthy:
            fall_ill(HEALTHY)
            run = self._healthy[algorithm, discrete] = self._train(algorithm, discrete)
            assert canary.certify(run, episodes=20)["verdict"] == "SATISFIED"
        return self._healthy[algorithm, discrete]


ATTACKS = [SickEnvironments()]
