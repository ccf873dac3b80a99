"""Whole episodes of a frozen policy: one per key, each its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.environments.icy_lake import IcyLake
from canary.evaluation import play_episodes
from canary.exact import cost_law, from_environment
from canary.networks import CategoricalPolicy, make_mlp
from canary.rollout import CostAccount
from problems.trees import same

LAKE = IcyLake(horizon=30)
ACCOUNT = CostAccount(5.5, 1.0)


@pytest.fixture(scope="module")
def uniform():
    """An orthogonal head times zero."""
    policy = CategoricalPolicy(make_mlp(jax.random.key(5), (18, 8, 4), head_scale=0.0))
    return jax.jit(lambda keys: play_episodes(LAKE, ACCOUNT, policy, None, keys)[0])


def keys_of(count):
    return jax.vmap(lambda index: jax.random.fold_in(jax.random.key(3), index))(jnp.arange(count))


def test_costs_follow_the_exact_law_of_a_uniform_policy(uniform):
    """No bias towards short episodes: cost, spread and violations are those of the law."""
    count = 4000
    ends = jax.tree.map(np.asarray, uniform(keys_of(count)))
    assert ends.ended.all()
    assert ends.valid.all()
    assert ((ends.length < LAKE.horizon) <= ends.terminated).all()
    assert (ends.length <= LAKE.horizon).all()
    np.testing.assert_array_equal(ends.reward, ends.terminated)
    mdp = from_environment(LAKE)
    law = cost_law(mdp, np.full((mdp.horizon, mdp.states, len(mdp.support), mdp.actions), 1 / 4))
    error = 4 * (law.variance / count) ** 0.5
    assert abs(ends.cost.mean() - law.mean) < error
    assert abs(ends.cost.var() / law.variance - 1) < 0.2
    violation = law.violation(5.5)
    assert (
        abs((ends.cost > 5.5).mean() - violation) < 4 * (violation * (1 - violation) / count) ** 0.5
    )


def test_an_episode_belongs_to_its_key(uniform):
    """Alone, first or last among many: the same episode."""
    many = jax.tree.map(np.asarray, uniform(keys_of(4000)))
    few = jax.tree.map(np.asarray, uniform(keys_of(7)))
    assert same(few, jax.tree.map(lambda leaf: leaf[:7], many))
    assert len(set(many.length[:50].tolist())) > 3
