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
from problems.probe_environments import Questions

LAKE = IcyLake(horizon=30)
ACCOUNT = CostAccount(5.5, 1.0)


def network(inputs, actions, scale=0.0):
    """Uniform at scale 0: an orthogonal head times zero."""
    return CategoricalPolicy(make_mlp(jax.random.key(5), (inputs, 8, actions), head_scale=scale))


@pytest.fixture(scope="module")
def uniform():
    policy = network(18, 4)
    return jax.jit(lambda keys: play_episodes(LAKE, ACCOUNT, policy, None, keys)[0])


def keys_of(count):
    return jax.vmap(lambda index: jax.random.fold_in(jax.random.key(3), index))(jnp.arange(count))


def test_costs_follow_the_exact_law_of_a_uniform_policy(uniform):
    """No bias towards short episodes: mean cost, its spread and violations agree with dynamic
    programming."""
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
    for one, other in zip(jax.tree.leaves(few), jax.tree.leaves(many), strict=True):
        np.testing.assert_array_equal(one, other[:7])
    assert len(set(many.length[:50].tolist())) > 3


def test_deterministic_play_takes_the_most_likely_action():
    questions, policy = Questions(), network(7, 2, scale=0.5)
    run = jax.jit(
        lambda keys, deterministic: play_episodes(
            questions, CostAccount(1.0, 1.0), policy, None, keys, deterministic=deterministic
        )[0],
        static_argnums=1,
    )
    mode = int(policy(jnp.array([0.0, 0, 0, 1, 0, 1, 0])).mode())
    keys = keys_of(400)
    sure, sampled = run(keys, True), run(keys, False)
    # Question 3 is the only one-step episode without cost whose reward is the action; 1 earns 2.
    for ends, expected in ((sure, {mode}), (sampled, {0, 1})):
        free = (np.asarray(ends.cost) == 0) & (np.asarray(ends.reward) != 2)
        assert 50 < free.sum() < 150
        assert set(np.asarray(ends.reward)[free].astype(int)) == expected
    # The two-step question: costs and steps of both, one reward.
    two = np.asarray(sure.length) == 2
    assert (np.asarray(sure.cost)[two] == 2).all()
    assert (np.asarray(sure.reward)[two] == 1).all()
