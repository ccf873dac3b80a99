"""PointGoal against recordings and statistics of Safety-Gymnasium 1.0.0; the order of a step."""

from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from canary.environments.point_goal import (
    AWAY,
    PointGoal,
    PointGoalState,
    PointRobot,
    lidar,
    sense,
    simulate,
)
from canary.environments.protocol import EnvironmentState, first_state

GOLDEN = dict(np.load(Path(__file__).parent / "golden" / "safety_point_goal.npz"))
REACHED = (GOLDEN["goal"] != GOLDEN["goal_before"]).any(1)
PUSHED = np.abs(GOLDEN["vase_position"] - GOLDEN["vase_position_before"])[:, :2].max(1) > 1e-6
SENSORS, GOAL_LIDAR, VASE_LIDAR = slice(0, 12), slice(12, 28), slice(44, 60)


def wrap(inner: PointGoalState) -> EnvironmentState:
    return first_state(inner, jnp.zeros(60, jnp.float32))


def state_of(row) -> EnvironmentState:
    """Upstream's state before a recorded step."""
    robot = PointRobot(
        row["position_before"],
        row["heading_before"],
        row["velocity_before"],
        row["yaw_rate_before"],
    )
    vase = row["vase_position_before"]
    distance = jnp.linalg.norm(row["goal_before"] - robot.position)
    return wrap(PointGoalState(robot, row["goal_before"], row["hazards"], vase[:2], distance))


def replay(environment, *, x64):
    """Every recorded step, each from upstream's own state before it."""
    with jax.enable_x64(x64):
        dtype = jnp.float64 if x64 else jnp.float32
        rows = {name: jnp.asarray(values, dtype) for name, values in GOLDEN.items()}
        keys = jax.random.split(jax.random.key(0), len(REACHED))
        step = jax.vmap(lambda row, key: environment.step(state_of(row), row["action"], key))
        return jax.tree.map(np.asarray, jax.jit(step)(rows, keys))


def robot_error(after, name):
    ours, theirs = getattr(after.inner.robot, name), GOLDEN[name]
    if name == "heading":
        ours, theirs = np.exp(1j * ours), np.exp(1j * theirs)
    return np.abs(ours - theirs).reshape(len(theirs), -1).max(1)


def test_every_recorded_step_is_ours_in_double_precision():
    """All numbers of a step and all 60 observations, except while upstream pushes its vase."""
    after, alone = replay(PointGoal(), x64=True), ~PUSHED
    # From the last frame on
    touching = np.abs(GOLDEN["observation"][:, 1] - after.observation[:, 1]) > 1e-5
    assert (touching & ~PUSHED).sum() <= 3
    assert robot_error(after, "position")[alone].max() < 1e-13
    assert robot_error(after, "heading")[alone].max() < 1e-12
    assert robot_error(after, "velocity")[alone].max() < 1e-11
    assert robot_error(after, "yaw_rate")[alone].max() < 1e-9
    np.testing.assert_array_equal(after.cost, GOLDEN["cost"])
    np.testing.assert_allclose(after.reward[alone], GOLDEN["reward"][alone], atol=1e-7)
    np.testing.assert_array_equal((after.inner.goal != GOLDEN["goal_before"]).any(1), REACHED)
    compare = np.ones_like(after.observation, bool)
    compare[PUSHED], compare[touching, SENSORS], compare[REACHED, GOAL_LIDAR] = False, False, False
    np.testing.assert_allclose(
        after.observation[compare], GOLDEN["observation"][compare], atol=1e-6
    )


def test_every_recorded_step_in_single_precision():
    """Rounding grows a million times in the ten frames of a step where the servo oscillates:
    gyroscope and accelerometer show it, the rest does not."""
    after, alone = replay(PointGoal(), x64=False), ~PUSHED
    assert robot_error(after, "position")[alone].max() < 2e-6
    assert robot_error(after, "heading")[alone].max() < 2e-5
    np.testing.assert_array_equal(after.cost, GOLDEN["cost"])
    np.testing.assert_allclose(after.reward[alone], GOLDEN["reward"][alone], atol=5e-6)
    np.testing.assert_array_equal(
        np.abs(after.inner.goal - GOLDEN["goal_before"]).max(1) > 1e-5, REACHED
    )
    # The lidars of hazards and vase
    shown, theirs = after.observation[:, 28:], GOLDEN["observation"][:, 28:]
    np.testing.assert_allclose(shown[alone], theirs[alone], atol=1e-4)


def test_upstream_shows_the_new_goal_and_so_do_we():
    """With the step that reaches a goal, upstream returns the lidar of the next goal."""
    see = jax.jit(jax.vmap(lambda position, heading, goal: lidar(position, heading, (goal[None],))))
    for goal, is_shown in (("goal", True), ("goal_before", False)):
        seen = see(*(GOLDEN[name][REACHED] for name in ("position", "heading", goal)))
        error = np.abs(seen - GOLDEN["observation"][REACHED, GOAL_LIDAR]).max(1)
        assert ((error < 1e-4) == is_shown).all()


def lone(goal=(1.0, 0.0), hazard=(-1.0, -1.0)) -> EnvironmentState:
    """A robot at rest in the origin; one hazard where it is said, all else out of the way."""
    away, zero = jnp.full((8, 2), AWAY), jnp.zeros(())
    robot = PointRobot(jnp.zeros(2), zero + 0.5, jnp.zeros(2), zero)
    goal, hazards = jnp.array(goal), away.at[0].set(jnp.array(hazard))
    return wrap(PointGoalState(robot, goal, hazards, away[0], jnp.linalg.norm(goal)))


step = jax.jit(PointGoal().step)
REST = jnp.zeros(2)


def test_order_of_a_step_that_reaches_a_goal_inside_a_hazard():
    """Reward and cost belong to the old goal, the observation and the next reward to the new."""
    before = lone(goal=(0.29, 0.0), hazard=(0.0, 0.1))
    after = step(before, REST, jax.random.key(1))
    assert float(after.reward) == pytest.approx(1.0)
    assert float(after.cost) == 1.0
    assert not bool(after.terminated | after.truncated)
    goal, robot = after.inner.goal, after.inner.robot
    assert float(jnp.linalg.norm(goal - robot.position)) > 0.705 - 1e-6
    np.testing.assert_allclose(
        after.inner.last_distance, jnp.linalg.norm(goal - robot.position), rtol=1e-6
    )
    np.testing.assert_allclose(
        after.observation[GOAL_LIDAR],
        lidar(robot.position, robot.heading, (goal[None],)),
        atol=1e-6,
    )
    again = step(after, REST, jax.random.key(2))
    assert abs(float(again.reward)) < 1e-6


@pytest.mark.parametrize("beyond", [False, True])
def test_a_hazard_costs_and_a_goal_pays_inside_its_radius_only(beyond):
    key, margin = jax.random.key(0), 1e-4 if beyond else -1e-4
    assert float(step(lone(hazard=(0.2 + margin, 0.0)), REST, key).cost) == (not beyond)
    paid = float(step(lone(goal=(0.0, 0.3 + margin)), REST, key).reward)
    assert paid == pytest.approx(float(not beyond))


def test_actions_are_clipped_and_a_missing_one_ends_the_episode():
    state, key = lone(), jax.random.key(0)
    wild, full = step(state, jnp.array([7.0, -9.0]), key), step(state, jnp.array([1.0, -1.0]), key)
    jax.tree.map(np.testing.assert_array_equal, wild, full)
    broken = step(state, jnp.array([jnp.nan, 0.0]), key)
    assert (float(broken.cost), float(broken.reward)) == (1.0, -10.0)
    assert bool(broken.terminated)
    assert np.isfinite(broken.observation).all()


def episodes(environment, policy, count, seed):
    """Returns and costs of whole episodes of `policy(key) -> action`."""

    def play(key):
        def advance(state, key):
            key_action, key_step = jax.random.split(key)
            state = environment.step(state, policy(key_action), key_step)
            return state, (state.reward, state.cost)

        start = environment.reset(jax.random.fold_in(key, 0))
        _, (reward, cost) = jax.lax.scan(advance, start, jax.random.split(key, environment.horizon))
        return reward.sum(), cost.sum()

    keys = jax.random.split(jax.random.key(seed), count)
    return map(np.asarray, jax.jit(jax.vmap(play))(keys))


def test_a_random_policy_is_as_safe_as_upstream():
    """Upstream (40 episodes) and an independent clone of it (400): J -0.11 +- 0.64, C 36.7 +- 96,
    P(C = 0) 0.78, P(C > 100) 0.13. All within four standard errors of both samples together."""
    returns, costs = episodes(
        PointGoal(), lambda key: jax.random.uniform(key, (2,), minval=-1, maxval=1), 300, 3
    )
    error = np.sqrt(1 / 400 + 1 / 300)
    assert returns.mean() == pytest.approx(-0.11, abs=4 * 0.64 * error)
    assert costs.mean() == pytest.approx(36.7, abs=4 * 96 * error)
    assert costs.std() == pytest.approx(96, rel=0.25)
    assert (costs == 0).mean() == pytest.approx(0.78, abs=4 * np.sqrt(0.78 * 0.22) * error)
    assert (costs > 100).mean() == pytest.approx(0.13, abs=4 * np.sqrt(0.13 * 0.87) * error)


def test_without_a_vase_its_lidar_is_dark():
    readings = [
        jax.jit(PointGoal(vase=vase).reset)(jax.random.key(0)).observation[VASE_LIDAR]
        for vase in ("none", "static")
    ]
    assert readings[0].max() == 0 < readings[1].max()


# The robot under `implicitfast` against C MuJoCo

FRAMES = 10
MODEL = Path(__file__).parent / "golden" / "point_robot.xml"


def mujoco_drive(actions):
    """qpos, qvel and sensors after each action and, as upstream reads them, mj_forward."""
    model, rows = mujoco.MjModel.from_xml_path(str(MODEL)), []
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    data = mujoco.MjData(model)
    for action in actions:
        data.ctrl[:] = action
        for _ in range(FRAMES):
            mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        rows.append(np.concatenate([data.qpos, data.qvel, data.sensordata]))
    return np.array(rows)


def test_implicitfast_equals_mujoco_without_correction():
    actions = np.repeat(np.random.default_rng(0).uniform(-1, 1, (20, 2)), 5, axis=0)
    expected = mujoco_drive(actions)

    def advance(robot, action):
        robot = simulate(robot, action, FRAMES, implicitfast=True)
        return robot, (robot, sense(robot, action))

    with jax.enable_x64(True):
        zero = jnp.zeros(())
        still = PointRobot(jnp.zeros(2), zero, jnp.zeros(2), zero)
        robots, sensors = jax.jit(lambda robot, given: jax.lax.scan(advance, robot, given)[1])(
            still, jnp.asarray(actions)
        )
    np.testing.assert_allclose(robots.position, expected[:, :2], atol=1e-12)
    np.testing.assert_allclose(robots.heading, expected[:, 2], atol=1e-12)
    np.testing.assert_allclose(sensors, expected[:, 6:], atol=1e-9)
    assert np.ptp(expected[:, 2]) > 0.5  # it did turn
