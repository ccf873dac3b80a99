"""EcoAnt: published numbers of its body, its reward, cost and ends, every setting."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.environments.eco_ant import INITIAL_POSITION, EcoAnt

ANT = EcoAnt()
STILL = EcoAnt(noise_scale=0.0, reset_noise=0.0)  # deterministic, from the exact stance
KEY = jax.random.key(0)
STEP = eqx.filter_jit(lambda ant, state, action, key: ant.step(state, action, key))


def play(ant, actions):
    """Rewards, costs and positions of one episode under open-loop actions."""

    def advance(state, action):
        state = ant.step(state, action, KEY)
        return state, (state.reward, state.cost, state.inner.physics.qpos)

    return jax.lax.scan(advance, ant.reset(KEY), actions)[1]


def at_height(ant, height, **fields):
    """On its back, so that no foot pushes the torso up."""
    state = ant.reset(KEY)
    qpos = state.inner.physics.qpos.at[2].set(height).at[3:7].set(jnp.array([0.0, 1.0, 0.0, 0.0]))
    return replace(eqx.tree_at(lambda s: s.inner.physics.qpos, state, qpos), **fields)


def test_published_numbers_of_a_zero_and_of_a_wave_action():
    """Computed with C MuJoCo 3.17 in float64 from the Ant of Brax with 4 solver iterations."""
    with jax.enable_x64(True):
        program = jax.jit(lambda actions: play(STILL, actions))
        rewards, _, positions = program(jnp.zeros((100, 8)))
        np.testing.assert_allclose(
            positions[np.array([0, 9, 99]), 2], [0.554345, 0.553852, 0.532105], atol=5e-7
        )
        assert float(rewards.sum()) == pytest.approx(100, abs=1e-3)
        wave = 0.5 * np.sin(np.arange(8) + 0.3 * np.arange(50)[:, None])
        rewards, costs, positions = program(jnp.asarray(wave))
        assert float(rewards.sum()) == pytest.approx(22.543990, abs=1e-5)
        assert float(costs.sum()) == pytest.approx(25.154896, abs=1e-6)
        np.testing.assert_allclose(positions[-1, :3], [-0.115056, -0.864016, 0.592289], atol=1e-5)


def test_observation_order():
    state = STEP(ANT, ANT.reset(KEY), jnp.full(8, 0.3), KEY)
    body = state.inner.physics
    np.testing.assert_array_equal(state.observation[:13], body.qpos[2:])
    np.testing.assert_array_equal(state.observation[13:27], body.qvel)
    assert float(state.observation[27]) == pytest.approx(1 - float(state.cost) / 500)
    bare = EcoAnt(battery=False).reset(KEY)
    np.testing.assert_array_equal(bare.observation, ANT.reset(KEY).observation[:27])


def test_resets_are_fresh_noisy_and_have_a_unit_quaternion():
    states = jax.jit(jax.vmap(ANT.reset))(jax.random.split(KEY, 2000))
    qpos, qvel = np.asarray(states.inner.physics.qpos), np.asarray(states.inner.physics.qvel)
    np.testing.assert_allclose(np.linalg.norm(qpos[:, 3:7], axis=1), 1, atol=1e-6)
    others = [0, 1, 2, *range(7, 15)]
    offset = qpos[:, others] - INITIAL_POSITION[others]
    assert 0.0995 < offset.max() <= 0.1 + 1e-6
    assert offset.std() == pytest.approx(0.1 / np.sqrt(3), rel=0.03)
    assert qvel.std() == pytest.approx(0.1, rel=0.03)
    assert len(np.unique(qpos[:, 0])) > 1990
    assert (np.asarray(states.observation)[:, 27] == 1).all()
    assert not np.asarray(states.terminated | states.truncated).any()


def test_cost_identities():
    quiet = EcoAnt(noise_scale=0.0)
    start = quiet.reset(KEY)
    assert float(STEP(quiet, start, jnp.full(8, 0.5), KEY).cost) == pytest.approx(1.0)
    assert float(STEP(quiet, start, jnp.full(8, -7.0), KEY).cost) == pytest.approx(4.0)
    keys = jax.random.split(KEY, 4000)
    noisy = jax.jit(jax.vmap(lambda key: ANT.step(start, jnp.zeros(8), key).cost))(keys)
    assert float(noisy.mean()) == pytest.approx(0.04, abs=4 * 0.02 / np.sqrt(4000))


def test_the_reward_is_velocity_plus_bonus_minus_control_cost():
    start, action = ANT.reset(KEY), jnp.linspace(-1, 1, 8)
    after = STEP(ANT, start, action, KEY)
    velocity = (after.inner.physics.qpos[0] - start.inner.physics.qpos[0]) / 0.05
    assert float(after.reward) == pytest.approx(float(velocity + 1 - after.cost), abs=1e-5)
    plain = STEP(EcoAnt(healthy_bonus=0.0, control_cost=0.0), start, action, KEY)
    assert float(plain.reward) == pytest.approx(float(velocity), abs=1e-5)
    assert float(plain.cost) == float(after.cost) > 0


@pytest.mark.parametrize(("height", "ends"), [(0.1, True), (0.5, False), (1.2, True)])
def test_an_unhealthy_height_ends_the_episode(height, ends):
    state = STEP(ANT, at_height(ANT, height), jnp.zeros(8), KEY)
    assert bool(state.terminated) == ends
    tolerant = EcoAnt(terminate_when_unhealthy=False, noise_scale=0.0)
    state = STEP(tolerant, at_height(tolerant, height), jnp.zeros(8), KEY)
    before = at_height(tolerant, height).inner.physics.qpos[0]
    bonus = float(state.reward) - float(state.inner.physics.qpos[0] - before) / 0.05
    assert not bool(state.terminated)
    assert bonus == pytest.approx(0.0 if ends else 1.0, abs=1e-4)


def test_an_empty_battery_ends_the_episode_unless_told_otherwise():
    small = EcoAnt(battery_limit=6.0, noise_scale=0.0)
    state = small.reset(KEY)
    ends = []
    for _ in range(2):
        state = STEP(small, state, jnp.ones(8), KEY)
        ends.append(bool(state.terminated))
    assert ends == [False, True]
    assert float(state.observation[27]) == 0.0
    patient = EcoAnt(battery_limit=6.0, terminate_when_empty=False)
    assert not bool(STEP(patient, replace(state, time=jnp.array(2)), jnp.ones(8), KEY).terminated)


def test_a_nan_action_ends_the_episode_at_the_highest_price():
    action = jnp.zeros(8).at[3].set(jnp.nan)
    state = STEP(STILL, STILL.reset(KEY), action, KEY)
    assert bool(state.terminated)
    assert float(state.cost) == 0.5
    state = STEP(STILL, STILL.reset(KEY), jnp.full(8, jnp.nan), KEY)
    assert float(state.cost) == 4.0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    fine = STEP(STILL, STILL.reset(KEY), jnp.full(8, jnp.inf), KEY)
    assert not bool(fine.terminated)
    assert float(fine.cost) == 4.0


def test_a_diverged_simulation_ends_the_episode_with_finite_numbers():
    start = STILL.reset(KEY)
    wild = eqx.tree_at(
        lambda s: s.inner.physics.qvel, start, start.inner.physics.qvel.at[2].set(1e12)
    )
    state = STEP(STILL, wild, jnp.full(8, 0.5), KEY)
    assert bool(state.terminated)
    assert float(state.cost) == pytest.approx(1.0)
    assert float(state.reward) == pytest.approx(0.0)
    assert np.isfinite(state.observation).all()
