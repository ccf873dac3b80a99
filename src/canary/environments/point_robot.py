"""Safety-Gymnasium's point robot without contacts, in closed form: equal to C MuJoCo up to
rounding.

A sphere (radius 0.1) with a small box in front slides without friction in the plane and turns about
its vertical axis. In the frame of its body, with velocity (v_f, v_s) forward and sideways, yaw rate
w, mass m, centre of mass d ahead of the origin, inertia I about the origin and time step h,
MuJoCo's equations of motion are

    [m  0    0  ]                          [F + m d w^2 - 0.01 v_f]
    [0  m    m d] (acceleration, dw/dt) =  [          - 0.01 v_s  ]
    [0  m d  I  ]                          [T - 0.005 w           ]

    F = 0.3 clip(u_0, -0.05, 0.05)         T = 0.3 clip(u_1 - 0.3 w, -0.05, 0.05)

(the motor saturates at 1/20 of its range; turning is a velocity servo). MuJoCo treats damping
implicitly: h diag(0.01, 0.01, 0.005) joins the matrix. Its `implicitfast` integrator adds the
servo's derivative, 0.09 h, wherever the servo is not saturated. Under `euler` that servo is
unstable at 2 ms: the yaw rate oscillates by about 0.5 rad/s between physics steps and amplifies
rounding about fivefold per step, so two machines agree on poses, but not on yaw rate and lateral
acceleration.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

TIME_STEP = 0.002  # seconds of one physics step
# Mass and shape follow from the geoms of the model at density 1 (sphere of radius 0.1, cube of side
# 0.1 at x = 0.1).
SPHERE_MASS, BOX_MASS = 4 / 3 * np.pi * 0.1**3, 0.1**3
MASS = SPHERE_MASS + BOX_MASS
LEVER = BOX_MASS * 0.1  # mass times the distance of the centre of mass ahead of the origin
INERTIA = SPHERE_MASS * 0.4 * 0.1**2 + BOX_MASS * (0.1**2 / 6 + 0.1**2)
SLIDE_DAMPING, TURN_DAMPING = 0.01, 0.005
GEAR, LARGEST_FORCE = 0.3, 0.05
GRAVITY = 9.81
MAGNETIC_FIELD = -0.5  # along the y axis of the world


class PointRobot(eqx.Module):
    """Pose and velocity in the frame of the world; the heading is the angle of the robot's
    front."""

    position: Float[Array, "*batch 2"]
    heading: Float[Array, "*batch"]
    velocity: Float[Array, "*batch 2"]
    yaw_rate: Float[Array, "*batch"]


def _solver(damped: bool, servo: bool) -> tuple[float, float, float, float]:
    """The inverse of the matrix above, times the time step if damped: its forward entry and its 2 x
    2 block."""
    step = TIME_STEP if damped else 0.0
    mass = MASS + step * SLIDE_DAMPING
    inertia = INERTIA + step * (TURN_DAMPING + (GEAR**2 if servo else 0.0))
    scale = TIME_STEP if damped else 1.0
    determinant = mass * inertia - LEVER**2
    return (
        scale / mass,
        scale * inertia / determinant,
        -scale * LEVER / determinant,
        scale * mass / determinant,
    )


ACCELERATE, STEP, STEP_WITH_SERVO = _solver(False, False), _solver(True, False), _solver(True, True)


def simulate(
    robot: PointRobot, action: Float[Array, "2"], frames: int, *, implicitfast: bool = False
) -> PointRobot:
    """`frames` physics steps of 2 ms with the action held; the action lies in [-1, 1]."""

    def advance(_, robot: PointRobot) -> PointRobot:
        cosine, sine = jnp.cos(robot.heading), jnp.sin(robot.heading)
        forward, side, turn, saturated = _forces(robot, action, (cosine, sine))
        solver = STEP
        if implicitfast:
            solver = tuple(
                jnp.where(saturated, a, b) for a, b in zip(STEP, STEP_WITH_SERVO, strict=True)
            )
        straight, lateral, mixed, turning = solver
        ahead, across = straight * forward, lateral * side + mixed * turn
        push = jnp.stack([cosine * ahead - sine * across, sine * ahead + cosine * across])
        velocity, yaw_rate = robot.velocity + push, robot.yaw_rate + mixed * side + turning * turn
        return PointRobot(
            robot.position + TIME_STEP * velocity,
            robot.heading + TIME_STEP * yaw_rate,
            velocity,
            yaw_rate,
        )

    return jax.lax.fori_loop(0, frames, advance, robot)


def sense(robot: PointRobot, action: Float[Array, "2"]) -> Float[Array, "12"]:
    """Accelerometer, velocimeter, gyroscope and magnetometer, three axes each, in the frame of the
    body."""
    cosine, sine = jnp.cos(robot.heading), jnp.sin(robot.heading)
    forward, side, turn, _ = _forces(robot, action, (cosine, sine))
    straight, lateral, mixed, _ = ACCELERATE
    x, y = robot.velocity
    zero = jnp.zeros_like(x)
    accelerometer = (straight * forward, lateral * side + mixed * turn, zero + GRAVITY)
    velocimeter = (cosine * x + sine * y, cosine * y - sine * x, zero)
    gyroscope = (zero, zero, robot.yaw_rate)
    magnetometer = (MAGNETIC_FIELD * sine, MAGNETIC_FIELD * cosine, zero)
    return jnp.stack([*accelerometer, *velocimeter, *gyroscope, *magnetometer])


def _forces(robot: PointRobot, action: Float[Array, "2"], rotation: tuple[Array, Array]):
    """The right-hand side above, forward, sideways and about the vertical; and whether the servo is
    saturated."""
    cosine, sine = rotation
    x, y = robot.velocity
    motor = GEAR * jnp.clip(action[0], -LARGEST_FORCE, LARGEST_FORCE)
    servo = action[1] - GEAR * robot.yaw_rate
    turn = GEAR * jnp.clip(servo, -LARGEST_FORCE, LARGEST_FORCE) - TURN_DAMPING * robot.yaw_rate
    forward = motor + LEVER * robot.yaw_rate**2 - SLIDE_DAMPING * (cosine * x + sine * y)
    side = -SLIDE_DAMPING * (cosine * y - sine * x)
    return forward, side, turn, jnp.abs(servo) >= LARGEST_FORCE
