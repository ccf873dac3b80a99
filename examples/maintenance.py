"""A finite decision process of your own, with its exact frontier: when to repair a machine that
wears out.

    python examples/maintenance.py                                                  the exact optima
    canary frontier --env examples.maintenance:Maintenance --limit 1.5 --epsilon 0.05
    canary train --env examples.maintenance:Maintenance --limit 1.5 --epsilon 0.05

A machine is new (0), worn (1, 2) or broken (3). Running it earns 1 and wears it out; running it
gently earns 0.6 and wears it out slowly; repairing it earns nothing and makes it new. A breakdown
costs 1 and takes the next step to repair, whatever is done. How often may it break down? P(more
than one breakdown in 20 steps) <= 0.05.

The tables say everything: the environment samples from them, and `canary.exact` computes with them.
"""

from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

import canary
from canary.environments.protocol import Discrete, EnvironmentState, FiniteTables
from canary.exact import best_response, best_under_cantelli, best_under_var, from_environment

RUN, GENTLE, REPAIR = range(3)
BROKEN = 3


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    horizon: int = 20
    wear: float = 0.3
    """Probability that a step of running wears the machine by one; gentle running has a third of
    it."""

    observation_size = 4
    normalise_observation = False
    action_space = Discrete(3)

    def finite_tables(self) -> FiniteTables:
        return self._tables

    @cached_property
    def _tables(self) -> FiniteTables:
        move = np.zeros((4, 3, 4))
        for state in range(BROKEN):
            for action, chance in ((RUN, self.wear * (1 + state) / 2), (GENTLE, self.wear / 3)):
                move[state, action, state] = 1 - chance
                move[state, action, state + 1] = chance
        move[:, REPAIR, 0] = 1
        move[BROKEN, :, :] = np.eye(4)[0]
        earned = np.zeros_like(move)
        earned[:BROKEN, RUN, :], earned[:BROKEN, GENTLE, :] = 1.0, 0.6
        cost = np.zeros_like(move)
        cost[:BROKEN, :, BROKEN] = 1.0
        return FiniteTables(move, earned, cost, np.zeros(4, bool), np.eye(4)[0])

    def reset(self, key):
        zero = jnp.zeros(())
        return self._state(jnp.zeros((), jnp.int32), zero, zero, jnp.zeros((), jnp.int32))

    def step(self, state, action, key):
        tables = jax.tree.map(lambda table: jnp.asarray(table, jnp.float32), self._tables)
        here = state.inner
        after = jax.random.categorical(key, jnp.log(tables.transition[here, action])).astype(
            jnp.int32
        )
        reward, cost = tables.reward[here, action, after], tables.cost[here, action, after]
        return self._state(after, reward, cost, state.time + 1)

    def _state(self, machine, reward, cost, time):
        seen = jax.nn.one_hot(machine, 4, dtype=jnp.float32)
        return EnvironmentState(
            inner=machine,
            observation=seen,
            reward=reward,
            cost=cost,
            terminated=jnp.zeros((), bool),
            truncated=time >= self.horizon,
            time=time,
        )


def main(limit: float = 1.5, epsilon: float = 0.05) -> None:
    mdp = from_environment(Maintenance())
    print(
        "best return, no constraint        "
        f"{best_response(mdp, np.zeros_like(mdp.support))[0]:6.3f}"
    )
    for name, solve in {
        "P <= 0.05": best_under_var,
        "Cantelli's bound": best_under_cantelli,
    }.items():
        best = solve(mdp, limit, epsilon)
        print(f"best return, {name:<20} {best.value:6.3f}   P = {best.law.violation(limit):.3f}")


def train(total_steps: int = 200_000, **how) -> canary.Run:
    constraint = canary.Chance(limit=1.5, epsilon=0.05)
    return canary.train(Maintenance(), constraint=constraint, total_steps=total_steps, **how)


if __name__ == "__main__":
    main()
