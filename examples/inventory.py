"""A shop with rare bursts of demand: an environment of your own, and what its best policies earn.

    python examples/inventory.py                                               the exact optima

    import canary                                                              training
    from examples.inventory import EPSILON, LIMIT, Inventory
    canary.train(Inventory(), constraint=canary.Chance(limit=LIMIT, epsilon=EPSILON))

Each morning the shop orders, and what it orders is there at once. Then customers come: usually they
want 0 to 2 units, rarely (3% of the days) a burst of 6. What is not in stock is not sold, nor owed:

    stock = min(left + order, capacity)       balance = stock - demand       left' = max(balance, 0)
    reward = price (stock - left') - purchase (stock - left) - holding left'
    cost = max(-balance, 0)

A full shop serves every burst, but holding goods costs money. How often may the shop disappoint
many customers? P(more than LIMIT units of unmet demand in 30 days) <= EPSILON.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from canary.environments.protocol import Discrete, EnvironmentState, FiniteTables
from canary.exact import (
    best_response,
    best_under_cantelli,
    best_under_cvar,
    best_under_var,
    cost_law,
    from_environment,
)

LIMIT, EPSILON = 6.5, 0.05


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The shop sees its balance of the evening, one-hot; only the horizon ends an episode."""

    horizon: int = 30
    capacity: int = 6
    largest_order: int = 3
    usual: tuple[float, ...] = (0.3, 0.4, 0.27)
    """Chances of a demand of 0, 1, 2, ... units; what they lack to 1 is the chance of a burst."""
    burst: int = 6
    price: float = 1.0
    purchase: float = 0.3
    holding: float = 0.1

    @property
    def observation_size(self) -> int:
        """Balances -burst, ..., capacity."""
        return self.burst + 1 + self.capacity

    @property
    def action_space(self) -> Discrete:
        """How many units to order."""
        return Discrete(self.largest_order + 1)

    @property
    def normalise_observation(self) -> bool:
        return False

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        del key  # every shop starts empty
        nothing = jnp.zeros((), jnp.int32)
        return self._evening(nothing, nothing, nothing, nothing)

    def step(
        self, state: EnvironmentState, action: Int[Array, ""], key: PRNGKeyArray
    ) -> EnvironmentState:
        """One day; the key is consumed by the demand."""
        sizes, chances = self.demand()
        demand = jax.random.choice(key, jnp.asarray(sizes), p=jnp.asarray(chances))
        stock = self.stock(state.inner, action)
        balance = stock - demand
        reward, cost = self.account(state.inner, stock, balance)
        return self._evening(balance, reward, cost, state.time + 1)

    def _evening(self, balance: Array, reward: Array, cost: Array, time: Array) -> EnvironmentState:
        place = balance + self.burst
        return EnvironmentState(
            inner=balance,
            observation=jax.nn.one_hot(place, self.observation_size, dtype=jnp.float32),
            reward=reward.astype(jnp.float32),
            cost=cost.astype(jnp.float32),
            terminated=jnp.zeros((), bool),
            truncated=time >= self.horizon,
            time=time,
        )

    # The rules of the shop, for arrays of numpy (the tables) and of JAX (the environment).

    def demand(self) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and their chances."""
        sizes = np.array([*range(len(self.usual)), self.burst], np.int32)
        return sizes, np.array([*self.usual, 1 - sum(self.usual)])

    def stock(self, balance: Any, order: Any) -> Any:
        return (balance.clip(0) + order).clip(0, self.capacity)

    def account(self, before: Any, stock: Any, after: Any) -> tuple[Any, Any]:
        """Reward and cost of a day, given the balances before and after it."""
        left = after.clip(0)
        paid = self.purchase * (stock - before.clip(0)) + self.holding * left
        return self.price * (stock - left) - paid, (-after).clip(0)

    def finite_tables(self) -> FiniteTables:
        """The same shop for `canary.exact` and `canary frontier`; state i is the balance i - burst,
        as in the observation."""
        balances = np.arange(-self.burst, self.capacity + 1)
        before, order = balances[:, None], np.arange(self.largest_order + 1)
        stock = self.stock(before, order)
        transition = np.zeros((*stock.shape, len(balances)))
        for size, chance in zip(*self.demand(), strict=True):
            transition += chance * (stock[:, :, None] - size == balances)
        reward, cost = self.account(before[:, :, None], stock[:, :, None], balances)
        return FiniteTables(
            transition=transition,
            reward=reward,
            cost=np.broadcast_to(cost, transition.shape),
            terminal=np.zeros(len(balances), bool),
            initial=(balances == 0).astype(float),
        )


def main() -> None:
    mdp = from_environment(Inventory())
    best, actions = best_response(mdp, np.zeros_like(mdp.support))
    chance = cost_law(mdp, actions).violation(LIMIT)
    print(f"best return, no constraint          {best:6.3f}   P(unmet > {LIMIT}) = {chance:.3f}")
    pool: list = []  # policies that one problem has found help to solve the next
    optima = {
        f"P <= {EPSILON}": best_under_var(mdp, LIMIT, EPSILON, pool),
        "CVaR <= limit": best_under_cvar(mdp, LIMIT, EPSILON, pool),
        "Cantelli's bound": best_under_cantelli(mdp, LIMIT, EPSILON, pool),
        "shaped, dead zone 0.4": best_under_cantelli(mdp, LIMIT, EPSILON, pool, dead_zone=0.4),
        "shaped, dead zone 0.8": best_under_cantelli(mdp, LIMIT, EPSILON, pool, dead_zone=0.8),
    }
    for name, optimum in optima.items():
        chance = optimum.law.violation(LIMIT)
        print(f"best return, {name:<22} {optimum.value:6.3f}   P(unmet > {LIMIT}) = {chance:.3f}")


if __name__ == "__main__":
    main()
