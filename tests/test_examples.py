"""The examples do what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples.inventory import EPSILON, LIMIT, Inventory

from canary.exact import (
    best_response,
    best_under_cantelli,
    best_under_cvar,
    best_under_var,
    cost_law,
    from_environment,
)

SHOP = Inventory()
TABLES = from_environment(SHOP)


def play(shop: Inventory, table: np.ndarray, episodes: int) -> tuple[np.ndarray, ...]:
    """Return, cost and visited balances of episodes with a policy on (balance, spent)."""

    def episode(key):
        def day(carry, key):
            state, spent = carry
            key_order, key_demand = jax.random.split(key)
            chances = jnp.asarray(table)[state.inner + shop.burst, spent.astype(int)]
            order = jax.random.categorical(key_order, jnp.log(chances))
            after = shop.step(state, order, key_demand)
            return (after, spent + after.cost), (
                after.reward,
                after.cost,
                after.inner,
                after.truncated,
            )

        keys = jax.random.split(key, shop.horizon)
        return jax.lax.scan(day, (shop.reset(key), jnp.zeros(())), keys)[1]

    days = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), episodes))
    return tuple(map(np.asarray, days))


def test_the_tables_of_the_inventory_are_those_of_its_environment():
    """A random policy on (balance, spent), in 4000 episodes of the JAX environment."""
    episodes = 4000
    table = np.random.default_rng(1).dirichlet(
        np.ones(4), size=(TABLES.states, len(TABLES.support))
    )
    law = cost_law(TABLES, table)
    reward, cost, balance, truncated = play(SHOP, table, episodes)
    assert (truncated == (np.arange(30) == 29)).all()
    assert (cost == np.maximum(-balance, 0)).all()
    assert (balance.min(), balance.max()) == (-6, 6)
    gained, spent = reward.sum(axis=1), cost.sum(axis=1)
    assert abs(gained.mean() - law.expected_return) < 4 * gained.std() / episodes**0.5
    assert abs(spent.mean() - law.mean) < 4 * spent.std() / episodes**0.5
    sampled = np.array([(spent > level).mean() for level in TABLES.support])
    exact = np.array([law.violation(level) for level in TABLES.support])
    assert np.abs(sampled - exact).max() < 1.95 / episodes**0.5  # Kolmogorov-Smirnov at 0.1%


def test_the_exact_optima_of_the_inventory():
    pool = []
    setting = TABLES, LIMIT, EPSILON, pool
    free, actions = best_response(TABLES, np.zeros_like(TABLES.support))
    assert free == pytest.approx(17.749, abs=1e-3)
    assert cost_law(TABLES, actions).violation(LIMIT) == pytest.approx(0.227, abs=1e-3)
    best = best_under_var(*setting).value
    bound = best_under_cantelli(*setting).value
    assert best == pytest.approx(16.116, abs=1e-3)
    assert best_under_cvar(*setting).value == pytest.approx(14.904, abs=1e-3)
    assert bound == pytest.approx(11.142, abs=1e-3)
    assert best > 1.2 * bound
    for dead_zone, value in ((0.4, 13.704), (0.8, 15.532)):
        shaped = best_under_cantelli(*setting, dead_zone=dead_zone)
        assert shaped.value == pytest.approx(value, abs=1e-3)
