"""The point robot in MuJoCo, with or without a vase that it can push: the engines beside the closed
form.

Without the vase this is the closed form again, slower, which is what tests hold them against. With
it, qpos is (x, y, heading) of the robot and (x, y, z, quaternion) of the vase.
"""

from functools import lru_cache

import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.environments.physics.engine import (
    Engine,
    PhysicsState,
    load_model,
    make_engine,
    require,
    start,
)
from canary.environments.point_robot import PointRobot

VASE_HEIGHT = 0.1 - 4e-5  # of its centre: sunk in as deep as its weight presses it


@lru_cache(maxsize=8)
def point_engine(name: str, frame_skip: int, free_vase: bool, integrator: str) -> Engine:
    """One engine per kind, whichever PointGoal asks: its model, threads and compiled programs are
    shared."""
    model = load_model("point_robot_and_vase.xml" if free_vase else "point_robot.xml")
    kinds = require("mujoco").mjtIntegrator
    model.opt.integrator = {"euler": kinds.mjINT_EULER, "implicitfast": kinds.mjINT_IMPLICITFAST}[
        integrator
    ]
    return make_engine(name, model, frame_skip)  # type: ignore[arg-type]


def place(
    engine: Engine, robot: PointRobot, vase: Float[Array, "2"], vase_heading: Float[Array, ""]
) -> PhysicsState:
    """The robot where it is, and the vase at rest on the floor."""
    qpos, qvel = [robot.position, robot.heading[None]], [robot.velocity, robot.yaw_rate[None]]
    if engine.model.nq > 3:
        half, zero = vase_heading / 2, jnp.zeros_like(vase_heading)
        qpos += [vase, jnp.stack([zero + VASE_HEIGHT, jnp.cos(half), zero, zero, jnp.sin(half)])]
        qvel += [jnp.zeros(6, vase.dtype)]
    return start(engine.model, jnp.concatenate(qpos), jnp.concatenate(qvel))


def robot_in(physics: PhysicsState) -> PointRobot:
    return PointRobot(physics.qpos[:2], physics.qpos[2], physics.qvel[:2], physics.qvel[2])


def vase_in(physics: PhysicsState) -> Float[Array, "2"]:
    """Where a free vase is."""
    return physics.qpos[3:5]
