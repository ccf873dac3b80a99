"""The closed-form point robot under `implicitfast` against C MuJoCo; under `euler` it is compared with
upstream's recorded steps in `test_point_goal`."""

from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from canary.environments.point_robot import PointRobot, sense, simulate

FRAMES = 10
MODEL = Path(__file__).parent / "golden" / "point_robot.xml"


def mujoco_drive(actions):
    """qpos, qvel and sensors after each action, as upstream reads them: after a final
    mj_forward."""
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
