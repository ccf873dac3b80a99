"""The closed-form point robot against upstream's recorded poses and against C MuJoCo."""

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from canary.environments.point_robot import PointRobot, sense, simulate

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
