"""Both physics engines: against MuJoCo's own loop, each other, under vmap and threads."""

import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from canary.environments import physics
from canary.environments.eco_ant import INITIAL_POSITION
from canary.environments.physics import PhysicsState, load_model, make_engine
from canary.errors import CanaryError

MODEL = load_model("eco_ant.xml")
NATIVE = make_engine("native", MODEL, 5)


def stance(dtype=np.float32):
    position = jnp.asarray(INITIAL_POSITION, dtype)
    return PhysicsState(position, jnp.zeros(14, dtype), jnp.zeros((), bool))


def wave(steps, dtype=np.float32):
    """The open-loop actions of the published parity numbers."""
    return (0.5 * np.sin(np.arange(8) + 0.3 * np.arange(steps)[:, None])).astype(dtype)


def positions(step, state, controls):
    found = []
    for control in controls:
        state = step(state, control)
        found.append(np.asarray(state.qpos))
    return np.array(found)


def mujoco_loop(controls, model=MODEL, frame_skip=5):
    data = mujoco.MjData(model)
    data.qpos[:] = INITIAL_POSITION
    found = []
    for control in controls:
        data.ctrl[:] = control
        for _ in range(frame_skip):
            mujoco.mj_step(model, data)
        found.append(data.qpos.copy())
    return np.array(found)


def random_rows(count, seed=0):
    """Stances with random velocities and controls, packed as the callback receives them."""
    generator = np.random.default_rng(seed)
    rows = np.zeros((count, 37), np.float32)
    rows[:, :15] = INITIAL_POSITION
    rows[:, 15:29] = generator.normal(size=(count, 14))
    rows[:, 29:] = generator.uniform(-1, 1, (count, 8))
    return rows


def test_native_equals_a_loop_of_mujoco_steps():
    """The solver starts cold in each call, and converges to the same state."""
    with jax.enable_x64(True):
        found = positions(jax.jit(NATIVE.step), stance(np.float64), wave(50, np.float64))
    expected = mujoco_loop(wave(50, np.float64))
    np.testing.assert_allclose(found[:10], expected[:10], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


# Single precision doubles two minutes of compilation; test_contract.py has it too.
@pytest.mark.parametrize(
    ("x64", "tolerance"), [(True, 1e-9), pytest.param(False, 1e-5, marks=pytest.mark.slow)]
)
def test_mjx_equals_c_mujoco(x64, tolerance):
    engine = make_engine("mjx", MODEL, 5)
    with jax.enable_x64(x64):
        dtype = np.float64 if x64 else np.float32
        step = jax.jit(engine.step)
        found = positions(step, stance(dtype), wave(10, dtype))
        assert found.dtype == dtype
        diverged = step(PhysicsState(*_with_huge_velocity(stance(dtype))), wave(1, dtype)[0])
    np.testing.assert_allclose(found, mujoco_loop(wave(10, dtype)), rtol=0, atol=tolerance)
    assert bool(diverged.diverged)
    np.testing.assert_allclose(diverged.qpos, INITIAL_POSITION, rtol=1e-6)


def _with_huge_velocity(state):
    return state.qpos, state.qvel.at[3].set(1e12), state.diverged


def test_nested_vmaps_are_one_call_with_the_numbers_of_single_steps(monkeypatch):
    engine, calls = make_engine("native", MODEL, 4), []  # no other test has this one
    advance = type(engine).advance
    monkeypatch.setattr(
        type(engine), "advance", lambda self, rows: calls.append(rows.shape) or advance(self, rows)
    )
    rows = random_rows(6)
    states = PhysicsState(rows[:, :15], rows[:, 15:29], np.zeros(6, bool))
    nest = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(2, 3, *leaf.shape[1:]), states)
    together = jax.jit(jax.vmap(jax.vmap(engine.step)))(nest, rows[:, 29:].reshape(2, 3, 8))
    assert calls == [(2, 3, 37)]
    for index in range(6):
        alone = engine.step(
            jax.tree.map(lambda leaf, i=index: jnp.asarray(leaf[i]), states), rows[index, 29:]
        )
        np.testing.assert_array_equal(alone.qpos, together.qpos.reshape(6, 15)[index])
        np.testing.assert_array_equal(alone.qvel, together.qvel.reshape(6, 14)[index])


def test_neither_batch_nor_threads_change_a_number(monkeypatch):
    monkeypatch.setattr(physics, "CORES", 3)
    engine, rows = make_engine("native", MODEL, 3), random_rows(100)  # this test's own engine
    together = engine.advance(rows)
    assert list(engine.idle) == [3]
    np.testing.assert_array_equal(together, [engine.advance(row) for row in rows])
    # Nothing is left over from the other calls
    np.testing.assert_array_equal(together, engine.advance(rows))
    assert [len(data) for _, data in engine.idle[3]] == [3]


def test_equal_models_have_one_engine_and_others_their_own():
    again = load_model("eco_ant.xml")
    assert make_engine("native", again, 5) is NATIVE
    again.opt.gravity[2] = -1.6
    other = make_engine("native", again, 5)
    assert other is not NATIVE
    assert make_engine("native", MODEL, 2) is not NATIVE
    rows = random_rows(2)
    state = PhysicsState(rows[0, :15], rows[0, 15:29], jnp.zeros((), bool))
    assert not np.array_equal(
        NATIVE.step(state, rows[0, 29:]).qpos, other.step(state, rows[0, 29:]).qpos
    )


def test_concurrent_calls_do_not_meet():
    batches = [random_rows(20, seed) for seed in range(8)]
    engine = make_engine("native", MODEL, 5)
    alone = [engine.advance(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            together = list(pool.map(engine.advance, batches))
            np.testing.assert_array_equal(together, alone)


def test_a_diverged_simulation_is_marked_and_stays_finite(monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    step, control = jax.jit(NATIVE.step), jnp.asarray(wave(1)[0])
    wild = PhysicsState(*_with_huge_velocity(stance()))
    after = step(wild, control)
    assert bool(after.diverged)
    np.testing.assert_array_equal(after.qpos, wild.qpos)
    np.testing.assert_array_equal(after.qvel, wild.qvel)
    assert not bool(step(stance(), control).diverged)
    assert bool(step(stance(), control.at[2].set(jnp.nan)).diverged)
    assert not list(tmp_path.iterdir())  # no MUJOCO_LOG.TXT
    assert capfd.readouterr() == ("", "")


def test_the_native_engine_is_for_cpus(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(CanaryError, match="runs on a CPU"):
        make_engine("native", MODEL, 5)


def test_without_mujoco_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(CanaryError, match=r"needs MuJoCo .*canary-rl\[mujoco\]"):
        load_model("eco_ant.xml")
