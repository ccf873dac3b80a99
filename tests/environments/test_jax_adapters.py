"""gymnax and Brax-like environments through the adapters against their own interfaces, stepped by
hand.

The smallest environments with these interfaces always run. The real packages run where they are
installed: they pin versions that exclude each other, so `make test-adapters` has an environment for
each.
"""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.checking.yardstick import full_check
from canary.environments import from_brax, from_gymnax
from canary.environments.protocol import Continuous, Discrete, Environment
from canary.errors import CanaryError
from problems.foreign_environments import BraxWalk, GymnaxWalk, OldGymnaxWalk


def needs(package: str):
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"{package} is not installed"
    )


def walk(environment, actions, seed=0):
    """The states of one episode from its reset to its end."""
    reset, step = jax.jit(environment.reset), jax.jit(environment.step)
    states = [reset(jax.random.key(seed))]
    for time, action in enumerate(actions):
        states.append(step(states[-1], action, jax.random.fold_in(jax.random.key(seed + 1), time)))
        if states[-1].terminated or states[-1].truncated:
            break
    return states


@pytest.mark.parametrize("kind", [GymnaxWalk, OldGymnaxWalk])
def test_gymnax_of_both_generations(kind):
    environment = from_gymnax(kind(), horizon=None)
    assert isinstance(environment, Environment)
    assert environment.horizon == 6
    assert environment.action_space == Continuous(1)
    assert full_check(environment, episodes=16)["ok"]
    still = walk(environment, [jnp.zeros(1)] * 9)
    assert len(still) == 7
    assert (bool(still[-1].terminated), bool(still[-1].truncated)) == (False, True)
    up = walk(environment, [jnp.ones(1)] * 9)  # 1 is stretched to 2
    assert (bool(up[-1].terminated), bool(up[-1].truncated)) == (True, False)
    assert len(up) <= 4
    for state in still[1:] + up[1:]:
        assert float(state.cost) == pytest.approx(abs(float(state.observation[0])))
        assert float(state.reward) == float(state.observation[0])


@pytest.mark.parametrize("kind", [GymnaxWalk, OldGymnaxWalk])
def test_an_end_at_the_time_limit_is_an_end(kind):
    """The sixth step passes the goal: terminated, not truncated, in both generations."""
    states = walk(from_gymnax(kind(), goal=1.5), [jnp.zeros(1)] * 5 + [jnp.ones(1)])
    assert len(states) == 7
    assert (bool(states[-1].terminated), bool(states[-1].truncated)) == (True, False)


def test_parameters_and_mistakes_of_gymnax():
    assert from_gymnax(GymnaxWalk(), max_steps_in_episode=9).horizon == 9
    changed = from_gymnax(GymnaxWalk(), goal=1.5).with_settings({"goal": 1.0})
    assert changed.settings() == {"goal": 1.0, "horizon": 6, "cost": "info:cost"}
    assert len(walk(changed, [jnp.ones(1)] * 9)) == 2
    with pytest.raises(CanaryError, match="has no parameter 'gole'"):
        from_gymnax(GymnaxWalk(), gole=1.0)
    with pytest.raises(CanaryError, match="has no 'hazard' to take the cost from"):
        walk(from_gymnax(GymnaxWalk(), cost="info:hazard"), [jnp.zeros(1)])


def test_brax_states():
    environment = from_brax(BraxWalk(), horizon=5)
    assert isinstance(environment, Environment)
    assert full_check(environment, episodes=16)["ok"]
    for actions, flags in (
        ([jnp.zeros(1)] * 9, (False, True)),
        ([jnp.full(1, 7.0)] * 9, (True, False)),
    ):
        states = walk(environment, actions)
        assert (bool(states[-1].terminated), bool(states[-1].truncated)) == flags
        for state in states[1:]:
            assert float(state.cost) == pytest.approx(abs(float(state.observation[0])))
    first, second = (environment.reset(jax.random.key(seed)) for seed in (1, 2))
    assert first.observation != second.observation  # every reset is a fresh one


def test_choices_with_brax():
    by_metric = walk(from_brax(BraxWalk(), "metrics:speed", horizon=5), [jnp.full(1, 0.5)])
    assert float(by_metric[-1].cost) == 0.5
    with pytest.raises(CanaryError, match="several observations"):
        _ = from_brax(BraxWalk(several=True), horizon=5).observation_size
    environment = from_brax(BraxWalk(several=True), horizon=5, observation="privileged_state")
    assert environment.observation_size == 2
    with pytest.raises(CanaryError, match="Name the package"):
        from_brax("ant")


@needs("gymnax")
@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_real_gymnax_agrees_with_its_own_steps(name):
    import gymnax

    def speed(before, action, after, info):
        return jnp.abs(after[-1])

    environment = from_gymnax(name, speed, horizon=30)
    plain, params = gymnax.make(name)
    assert full_check(environment, episodes=8)["ok"]
    action = jnp.zeros((), jnp.int32) if name == "CartPole-v1" else jnp.full(1, 0.5)
    states = walk(environment, [action] * 40)
    seen, state = plain.reset_env(jax.random.key(0), params)
    np.testing.assert_allclose(states[0].observation, seen, rtol=1e-5)
    for time, ours in enumerate(states[1:]):
        move = action if isinstance(environment.action_space, Discrete) else 2.0 * action
        key = jax.random.fold_in(jax.random.key(1), time)
        seen, state, reward, _, _ = plain.step_env(key, state, move, params)
        np.testing.assert_allclose(ours.observation, seen, rtol=1e-4, atol=1e-5)
        assert float(ours.reward) == pytest.approx(float(np.ravel(reward)[0]), rel=1e-4)
        assert float(ours.cost) == pytest.approx(abs(float(seen[-1])), rel=1e-4)
    ended = bool(states[-1].terminated)
    assert ended == (name == "CartPole-v1")
    assert bool(states[-1].truncated) != ended


def check_real_brax_kind(environment, plain, choose=lambda obs: obs, steps=3):
    reset, step = jax.jit(plain.reset), jax.jit(plain.step)
    theirs = reset(jax.random.key_data(jax.random.key(0)))
    action = jnp.full(int(plain.action_size), 0.3)
    states = walk(environment, [action] * steps)
    np.testing.assert_allclose(states[0].observation, choose(theirs.obs), rtol=1e-4, atol=1e-4)
    for ours in states[1:]:
        theirs = step(theirs, action)
        np.testing.assert_allclose(ours.observation, choose(theirs.obs), rtol=1e-2, atol=1e-2)
        assert float(ours.reward) == pytest.approx(float(theirs.reward), rel=1e-2, abs=1e-2)
        if "cost" in theirs.info:
            assert float(ours.cost) == pytest.approx(float(theirs.info["cost"]), rel=1e-3, abs=1e-3)


@needs("crax")
def test_real_crax():
    from crax.envs import get_environment

    environment = from_brax("crax:safe_goal_point", level=1)
    settings = {"level": 1, "horizon": 1000, "cost": "info:cost", "observation": None}
    assert environment.settings() == settings
    check_real_brax_kind(environment, get_environment("safe_goal_point", level=1))


@needs("brax")
def test_real_brax():
    from brax.envs import get_environment

    environment = from_brax("brax:fast", lambda before, action, after, info: jnp.abs(action).sum())
    check_real_brax_kind(environment, get_environment("fast"))


@needs("mujoco_playground")
def test_real_playground():
    from mujoco_playground import registry

    environment = from_brax(
        "playground:CartpoleBalance", lambda before, action, after, info: jnp.abs(action).sum()
    )
    check_real_brax_kind(environment, registry.load("CartpoleBalance"))
