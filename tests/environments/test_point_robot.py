"""The closed-form point robot against upstream's recorded poses and against C MuJoCo."""

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from canary.environments.point_robot import INERTIA, LEVER, MASS, PointRobot, sense, simulate

FRAMES = 10
GOLDEN = Path(__file__).parent / "golden" / "safety_point_goal.npz"


@pytest.fixture
def double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def robot_at(x=0.0, y=0.0, heading=0.0) -> PointRobot:
    return PointRobot(jnp.array([x, y]), jnp.asarray(heading), jnp.zeros(2), jnp.zeros(()))


def drive(robot, actions, **options):
    """The robot after each action, and its sensors."""

    def advance(robot, action):
        robot = simulate(robot, action, FRAMES, **options)
        return robot, (robot, sense(robot, action))

    return jax.jit(lambda robot, actions: jax.lax.scan(advance, robot, actions)[1])(
        robot, jnp.asarray(actions)
    )


def mujoco_data(integrator=mujoco.mjtIntegrator.mjINT_EULER):
    model = mujoco.MjModel.from_xml_path(str(GOLDEN.parent / "point_robot.xml"))
    model.opt.integrator = integrator
    return model, mujoco.MjData(model)


def mujoco_drive(model, data, actions):
    """qpos, qvel and sensors after each action, as upstream reads them: after a final
    mj_forward."""
    rows = []
    for action in actions:
        data.ctrl[:] = action
        for _ in range(FRAMES):
            mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        rows.append(np.concatenate([data.qpos, data.qvel, data.sensordata]))
    return np.array(rows)


def test_mass_properties_are_those_of_the_model():
    model, _ = mujoco_data()
    body = model.body("agent")
    offset = body.ipos[0]
    assert body.mass[0] == pytest.approx(MASS, rel=1e-12)
    assert pytest.approx(0.00518879, rel=1e-6) == MASS
    assert offset * body.mass[0] == pytest.approx(LEVER, rel=1e-12)
    assert offset == pytest.approx(0.01927232, rel=1e-6)
    # MuJoCo sorts the principal axes, so the smallest inertia of this body is about its own x axis.
    assert sorted(body.inertia)[-1] + body.mass[0] * offset**2 == pytest.approx(INERTIA, rel=1e-9)
    assert pytest.approx(2.842183e-5, rel=1e-6) == INERTIA


# After step k of the script from upstream's reset(seed=0): x, y, heading minus the initial heading.
POSES = {
    0: (0.10733251, 0.474040291, 0.0),
    1: (0.107174068, 0.475767905, -5e-9),
    9: (0.102674412, 0.524644363, 0.000305126),
    10: (0.102545717, 0.534696715, 0.042609599),
    19: (0.089848802, 0.656201507, 0.580461944),
    29: (0.037468415, 0.796163754, 0.321764504),
}
SCRIPT = np.repeat([(1.0, 0.0), (1.0, 1.0), (0.02, -0.5)], 10, axis=0)
HEADING = 1.662251935


@pytest.mark.parametrize("x64", [True, False])
def test_poses_of_upstream(x64):
    """Ten commands of "do not turn" leave the unstable servo to rounding, which no other program
    shares: after them positions agree to a millimetre and headings to a degree, in single precision
    as well."""
    with jax.enable_x64(x64):
        robots, sensors = drive(robot_at(0.107389709, 0.473416606, HEADING), SCRIPT)
        for step, (x, y, turned) in POSES.items():
            exact = step < 2
            far = (1e-6 if x64 else 4e-6) if exact else 1e-3
            np.testing.assert_allclose(robots.position[step], (x, y), atol=far, rtol=0)
            tolerance = 1e-6 if exact and x64 else 2e-2
            assert float(robots.heading[step]) - HEADING == pytest.approx(turned, abs=tolerance)
        assert float(sensors[0, 3]) == pytest.approx(0.056609916, abs=1e-6)
        assert float(sensors[0, 0]) == pytest.approx(2.781746857, abs=1e-4)


@pytest.mark.usefixtures("double")
def test_ten_saturated_steps_of_upstream():
    """From upstream's recorded state before step 10, without correction: the table's rows 10 and
    19."""
    golden = np.load(GOLDEN)
    np.testing.assert_array_equal(golden["action"][:30], SCRIPT)
    position, heading, velocity, yaw_rate = (
        jnp.asarray(golden[f"{name}_before"][10])
        for name in ("position", "heading", "velocity", "yaw_rate")
    )
    robots, _ = drive(PointRobot(position, heading, velocity, yaw_rate), SCRIPT[10:20])
    for step in (10, 19):
        x, y, turned = POSES[step]
        ours = (*robots.position[step - 10], robots.heading[step - 10] - HEADING)
        np.testing.assert_allclose(ours, (x, y, turned), atol=2e-9)


@pytest.mark.usefixtures("double")
def test_every_step_equals_mujoco():
    """From MuJoCo's state before each of 500 steps: pose, velocity and all sensors after it."""
    model, data = mujoco_data()
    data.qpos[2] = 0.7
    actions = np.random.default_rng(1).uniform(-1, 1, (500, 2))
    actions[::7, 0] *= 0.04  # below saturation
    start = np.concatenate([data.qpos, data.qvel])[None]
    after = mujoco_drive(model, data, actions)
    before = np.concatenate([start, after[:-1, :6]])

    def one(row, action):
        robot = simulate(PointRobot(row[:2], row[2], row[3:5], row[5]), action, FRAMES)
        pose = (robot.position, robot.heading[None], robot.velocity, robot.yaw_rate[None])
        return jnp.concatenate([*pose, sense(robot, action)])

    ours = jax.jit(jax.vmap(one))(jnp.asarray(before), jnp.asarray(actions))
    error = np.abs(np.asarray(ours) - after)
    assert error[:, :2].max() < 1e-13
    assert error[:, 2].max() < 1e-11
    assert error[:, 3:].max() < 1e-7  # the accelerometer sees the amplified yaw rate
    assert np.ptp(after[:, 2]) > 0.5  # it did turn


@pytest.mark.usefixtures("double")
def test_a_saturated_servo_runs_free_with_mujoco_for_long():
    """Full turns keep the servo saturated, so there is nothing to amplify: 200 steps without
    correction."""
    model, data = mujoco_data()
    actions = np.stack([np.sin(np.arange(200)), np.ones(200)], axis=1)
    expected = mujoco_drive(model, data, actions)
    robots, sensors = drive(robot_at(), actions)
    np.testing.assert_allclose(robots.position, expected[:, :2], atol=1e-12)
    np.testing.assert_allclose(robots.heading, expected[:, 2], atol=1e-12)
    np.testing.assert_allclose(sensors, expected[:, 6:], atol=1e-9)


@pytest.mark.usefixtures("double")
def test_implicitfast_equals_mujoco_without_correction():
    model, data = mujoco_data(mujoco.mjtIntegrator.mjINT_IMPLICITFAST)
    actions = np.repeat(np.random.default_rng(0).uniform(-1, 1, (20, 2)), 5, axis=0)
    expected = mujoco_drive(model, data, actions)
    robots, sensors = drive(robot_at(), actions, implicitfast=True)
    np.testing.assert_allclose(robots.position, expected[:, :2], atol=1e-12)
    np.testing.assert_allclose(robots.heading, expected[:, 2], atol=1e-12)
    np.testing.assert_allclose(sensors, expected[:, 6:], atol=1e-9)
    for steps, pose in {
        1: (0.00063284, 0.00051889, -0.02773345),
        10: (0.02575721, 0.00781000, -0.43555279),
        50: (0.55346273, -0.05492001, -0.57406502),
        100: (1.13028602, -0.31592741, -0.31463255),
    }.items():
        ours = (*robots.position[steps - 1], robots.heading[steps - 1])
        np.testing.assert_allclose(ours, pose, atol=1e-8)


def test_terminal_speeds():
    """1.5 m/s ahead; turning, 3.158 times the command below saturation and 3 rad/s at most."""
    for integrator in (False, True):
        straight, _ = drive(robot_at(), np.tile([0.05, 0.0], (400, 1)), implicitfast=integrator)
        assert float(straight.velocity[-1, 0]) == pytest.approx(1.5, rel=1e-3)
        # 0.52 s
        np.testing.assert_allclose(straight.velocity[25, 0] / 1.5, 1 - np.exp(-1), atol=0.02)
        full, _ = drive(robot_at(), np.tile([0.0, 1.0], (200, 1)), implicitfast=integrator)
        assert float(full.yaw_rate[-1]) == pytest.approx(3.0, rel=0.01)
        half, _ = drive(robot_at(), np.tile([0.0, 0.3], (200, 1)), implicitfast=integrator)
        mean_rate = float(half.heading[-1] - half.heading[-51]) / (50 * 0.02)
        # The oscillation under Euler makes the saturated servo lose: it turns a sixth slower.
        assert mean_rate == pytest.approx(
            0.9473 if integrator else 0.785, rel=2e-3 if integrator else 0.03
        )
