"""Our environments behind Gymnasium's interface: its own checker, and the same numbers as ours."""

import warnings

import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from canary.environments.to_gymnasium import to_gymnasium
from canary.errors import CanaryError
from problems.faulty_environments import Walk


@pytest.mark.parametrize("environment", ["IcyLake", Walk()], ids=["name", "walk"])
def test_gymnasiums_own_check_passes(environment):
    with warnings.catch_warnings():
        # It would like bounds on what is seen, and a spec, which only registered environments have.
        warnings.filterwarnings("ignore", message=".*(infinity|spec|not finite).*")
        check_env(to_gymnasium(environment), skip_render_check=True)


def test_a_whole_episode_has_our_numbers():
    face, ours = to_gymnasium(Walk(horizon=9)), Walk(horizon=9)
    seen, info = face.reset(seed=3)
    assert info == {"cost": 0.0}
    assert seen.dtype == np.float32
    key = jax.random.key(
        int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(3))).integers(2**31))
    )
    key, drawn = jax.random.split(key)
    state = ours.reset(drawn)
    np.testing.assert_array_equal(seen, state.observation)
    for step in range(9):
        action = np.full(1, 0.1 * step, np.float32)
        key, drawn = jax.random.split(key)
        state = jax.jit(ours.step)(state, action, drawn)
        seen, reward, terminated, truncated, info = face.step(action)
        np.testing.assert_allclose(seen, state.observation, rtol=1e-6)
        assert reward == pytest.approx(float(state.reward), rel=1e-6)
        assert info["cost"] == pytest.approx(float(state.cost), rel=1e-6)
        assert (terminated, truncated) == (bool(state.terminated), bool(state.truncated))
        if terminated or truncated:
            break
    assert terminated or truncated


def test_mistakes():
    face = to_gymnasium("IcyLake")
    with pytest.raises(CanaryError, match=r"Call reset\(\) before"):
        face.step(0)
    face.reset(seed=0)
    with pytest.raises(CanaryError, match="The action 7 is not in Discrete"):
        face.step(7)
    with pytest.raises(CanaryError, match="no environment called"):
        to_gymnasium("Lake")
