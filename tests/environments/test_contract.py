"""What every environment promises, on every engine it has.

One compiled program per case serves most tests: a rollout of random actions, as training makes it.
PointGoal's Euler steps amplify rounding, so that even the same formulas, compiled twice, part within
a few steps; where two programs are compared it runs with `implicitfast`.
"""

from dataclasses import replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.checking.structure import check_structure
from canary.environments import ENVIRONMENTS
from canary.environments.eco_ant import EcoAnt
from canary.environments.icy_lake import IcyLake
from canary.environments.point_goal import PointGoal, PointGoal2500
from canary.environments.protocol import Discrete, Environment
from canary.errors import CanaryError
from canary.networks import make_policy
from canary.rollout import CostAccount, collect, start_lanes
from problems.trees import assert_close

ACCOUNT = CostAccount(limit=1.0, cost_discount=1.0)
CASES = {
    "IcyLake": IcyLake(horizon=12),
    "EcoAnt native": EcoAnt(horizon=12, engine="native"),
    "EcoAnt mjx": EcoAnt(horizon=4, engine="mjx"),
    "PointGoal": PointGoal(horizon=12),
    "PointGoal2500": PointGoal2500(horizon=12),
}
PLAYED = [name for name in CASES if name != "PointGoal2500"]  # the program of its parent
FRESH = [name for name in PLAYED if name != "IcyLake"]  # whose reset has something to draw
COMPARED = [
    pytest.param(name, marks=[pytest.mark.slow] if "mjx" in name else []) for name in PLAYED
]


def sizes(name: str) -> tuple[int, int]:
    """Lanes and steps of a case's rollout: few where a step takes a while."""
    return (2, 9) if "mjx" in name else (20, 150)


def comparable(name: str) -> Environment:
    environment = CASES[name]
    return replace(environment, integrator="implicitfast") if name == "PointGoal" else environment


@lru_cache
def program(name: str, count: int, length: int):
    """A rollout with a policy that acts at random, as a compiled function of its key."""
    environment = CASES[name]

    def run(key):
        key_policy, key_lanes, key_run = jax.random.split(key, 3)
        size = environment.observation_size + CostAccount.SIZE
        policy = make_policy(key_policy, size, environment.action_space, (8,))
        lanes = start_lanes(environment, count, key_lanes, stagger=False)
        account = replace(ACCOUNT, clock=environment.horizon)
        return lanes, collect(environment, account, policy, lanes, None, key_run, length)

    return jax.jit(run)


@lru_cache
def played(name: str, seed: int = 0):
    """Initial lanes, final lanes, rollout and raw observations, as numpy."""
    first, (last, rollout, raw) = program(name, *sizes(name))(jax.random.key(seed))
    return jax.tree.map(np.asarray, (first, last, rollout, raw))


def random_action(space, key):
    if isinstance(space, Discrete):
        return jax.random.randint(key, (), 0, space.count)
    return jax.random.uniform(key, (space.size,), minval=-1.2, maxval=1.2)


def walk(environment, steps, key):
    """All states of one environment that takes random actions, from its first on."""

    def advance(state, time):
        key_action, key_step = jax.random.split(jax.random.fold_in(key, time))
        state = environment.step(
            state, random_action(environment.action_space, key_action), key_step
        )
        return state, state

    start = environment.reset(key)
    _, states = jax.lax.scan(advance, start, jnp.arange(steps))
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, states)


@lru_cache
def alone(name: str):
    """A whole episode of a case as a compiled function of its key."""
    return jax.jit(partial(walk, comparable(name), CASES[name].horizon))


@pytest.mark.parametrize("name", CASES)
def test_members_shapes_and_types(name):
    environment = CASES[name]
    assert isinstance(environment, Environment)
    check_structure(environment)
    assert hash(environment) == hash(replace(environment))
    assert {type(case).__name__ for case in CASES.values()} == set(ENVIRONMENTS)


@pytest.mark.parametrize("name", PLAYED)
def test_random_steps_give_finite_numbers_and_no_negative_cost(name):
    first, last, rollout, raw = played(name)
    assert rollout.cost.shape == sizes(name)[::-1]
    for leaf in jax.tree.leaves((first, last, rollout, raw)):
        if np.issubdtype(leaf.dtype, np.floating):
            assert np.isfinite(leaf).all()
    assert (rollout.cost >= 0).all()
    assert (first.environment.cost == 0).all()
    assert (first.environment.reward == 0).all()


@pytest.mark.parametrize("name", PLAYED)
def test_episodes_are_cut_exactly_at_the_horizon(name):
    _, _, rollout, _ = played(name)
    horizon = CASES[name].horizon
    time = np.rint(rollout.next_inputs[..., -2] * horizon).astype(int)
    assert rollout.truncated.any()
    assert not (rollout.truncated & rollout.terminated).any()
    np.testing.assert_array_equal(rollout.truncated, (time == horizon) & ~rollout.terminated)
    started = np.rint(rollout.inputs[..., -2] * horizon).astype(int)
    np.testing.assert_array_equal(time, started + 1)
    np.testing.assert_array_equal(started[1:], np.where(rollout.done[:-1], 0, time[:-1]))


@pytest.mark.parametrize("name", PLAYED)
def test_the_same_key_gives_the_same_numbers_and_another_key_others(name):
    again = jax.tree.map(np.asarray, program(name, *sizes(name))(jax.random.key(0))[1][1])
    jax.tree.map(np.testing.assert_array_equal, again, played(name)[2])
    assert not np.array_equal(played(name, 1)[2].inputs, again.inputs)


@pytest.mark.parametrize("name", FRESH)
def test_every_reset_is_a_fresh_one(name):
    """First observations of all lanes, and those after each end: no two alike."""
    first, _, rollout, raw = played(name)
    starts = np.concatenate([first.environment.observation, raw[1:][rollout.done[:-1]]])
    assert len(starts) > len(first.environment.observation)
    assert len(np.unique(starts, axis=0)) == len(starts)


@pytest.mark.parametrize("name", COMPARED)
def test_vmap_equals_a_loop_to_the_last_observation(name):
    """Three episodes at once, and each alone; what is compared last is the cut state."""
    environment, keys = comparable(name), jax.random.split(jax.random.key(3), 3)
    together = jax.jit(jax.vmap(partial(walk, environment, environment.horizon)))(keys)
    assert not np.array_equal(together.observation[0, 1:], together.observation[1, 1:])
    for lane, key in enumerate(keys):
        one = jax.tree.map(lambda leaf, i=lane: leaf[i], together)
        assert_close(one, alone(name)(key), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(), (3,), (1, 8)])
def test_an_action_of_the_wrong_shape_is_refused_in_a_sentence(name, shape):
    environment = CASES[name]
    state = jax.eval_shape(environment.reset, jax.random.key(0))
    space = environment.action_space
    if shape == (() if isinstance(space, Discrete) else (space.size,)):
        return
    with pytest.raises(CanaryError, match=r"action of .* shape"):
        jax.eval_shape(
            lambda state: environment.step(state, jnp.zeros(shape, jnp.int32), jax.random.key(0)),
            state,
        )
