"""Sick environments: numbers that are none, at the start or later, and episodes without an end. None ends SATISFIED."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import canary
from canary.algorithms import ALGORITHMS
from canary.environments.protocol import ActionSpace, Continuous, Discrete, EnvironmentState
from canary.errors import CanaryError

FIELDS = ("cost", "reward", "observation")
NUMBERS = {"nan": jnp.nan, "inf": jnp.inf, "-inf": -jnp.inf, "huge": 1e38}
FAULTS = [f"{field} {number} {when}" for field in FIELDS for number in NUMBERS for when in ("first", "late")]
FAULTS.append("no end")


@dataclass(frozen=True)
class Sick:
    """A walk on a line, with a cost at every other step, and one fault."""

    fault: str = "no end"
    discrete: bool = True
    horizon: int = 6
    observation_size: int = 2
    normalise_observation: bool = True

    @property
    def action_space(self) -> ActionSpace:
        return Discrete(2) if self.discrete else Continuous(1)

    def reset(self, key: jax.Array) -> EnvironmentState:
        place, zero, no = jax.random.normal(key), jnp.zeros(()), jnp.zeros((), bool)
        return EnvironmentState(place, self._see(place, 0), zero, zero, no, no, jnp.zeros((), jnp.int32))

    def step(self, state: EnvironmentState, action: jax.Array, key: jax.Array) -> EnvironmentState:
        move = 2.0 * action - 1.0 if self.discrete else jnp.clip(action[0], -1, 1)
        place, time = state.inner + 0.1 * move, state.time + 1
        values = {"reward": place, "cost": 1.0 * (time % 2)}
        for name in values:
            values[name] = jnp.where(self._strikes(name, time), self._number(), values[name])
        never = self.fault == "no end"
        ends = jnp.zeros((), bool) if never else time >= self.horizon
        return EnvironmentState(
            place, self._see(place, time), values["reward"], values["cost"], jnp.zeros((), bool), ends, time
        )

    def _see(self, place: jax.Array, time: int | jax.Array) -> jax.Array:
        seen = jnp.stack([place, jnp.ones(())])
        return jnp.where(self._strikes("observation", time), self._number(), seen)

    def _strikes(self, field: str, time: int | jax.Array) -> bool | jax.Array:
        """At the first step of every episode, or at its fourth."""
        words = self.fault.split()
        return words[0] == field and (time == (1 if words[2] == "first" else 4))

    def _number(self) -> float:
        words = self.fault.split()
        return float(NUMBERS.get(words[1], 0.0)) if len(words) == 3 else 0.0


CASES = [(fault, name, discrete) for discrete in (True, False) for name in ALGORITHMS for fault in FAULTS]


class SickEnvironments:
    name, tries = "sick environments", len(CASES)

    def prepare(self, folder: Path) -> None:
        self._folder = folder

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        fault, algorithm, discrete = CASES[
            (number * 37) % len(CASES)
        ]  # a bit of everything, however few are tried
        what = f"{fault}, {algorithm}, {'discrete' if discrete else 'continuous'}"
        try:
            run = canary.train(
                Sick(fault, discrete), algorithm, canary.Chance(limit=100.0, epsilon=0.5), seeds=1, total_steps=400,
                overrides=("algo.hidden=[4]", "training.environments=4", "training.rollout_length=25"),
                out=self._folder, quiet=True,
            )  # fmt: skip
            verdict = canary.certify(run, episodes=20)["verdict"]
        except CanaryError as error:
            return None if len(str(error)) > 20 else f"{what}: {error}"
        except Exception as error:
            return f"{what}: {type(error).__name__}: {error!s:.200}"
        return f"{what}: ended {verdict}" if verdict == "SATISFIED" else None


ATTACKS = [SickEnvironments()]
