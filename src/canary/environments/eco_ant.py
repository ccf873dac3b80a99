"""EcoAnt: run forward on four legs and spend little energy. Noise makes the energy of an episode
random.

The paper describes it in a sentence (section "Experiments"): maximise forward velocity, cost c_t =
0.5 ||a_t||^2. The rest follows the authors' public EcoAnt, the Ant of Brax with a battery:

    a = clip(action + noise_scale * N(0, I), -1, 1)           the executed action
    cost   = 0.5 ||a||^2
    reward = (x' - x) / dt + healthy_bonus - control_cost * cost
    end:     torso below 0.2 m or above 1 m, or battery = battery_limit - sum of costs <= 0

Details that the paper leaves open are settings; `docs/environments/eco_ant.md` lists the variants.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from canary.constraints import Chance
from canary.environments.physics import (
    Engine,
    EngineName,
    PhysicsState,
    load_model,
    make_engine,
    resolve,
)
from canary.environments.protocol import Continuous, EnvironmentState, first_state
from canary.errors import CanaryError
from canary.values import Amount, Count, Positive, convert_fields

TIME_STEP = 0.01  # seconds of a time step of the model
JOINTS = 8
POSE = 7  # x, y, z and a quaternion (w, x, y, z) in front of the hinges
HEALTHY_HEIGHT = (0.2, 1.0)
# Standing on bent legs; hinges are hip 1, ankle 1, ..., hip 4, ankle 4.
INITIAL_POSITION = np.array([0, 0, 0.55, 1, 0, 0, 0, 0, 1, 0, -1, 0, -1, 0, 1])


class AntState(eqx.Module):
    """The body and the remaining energy."""

    physics: PhysicsState
    battery: Float[Array, "*env"]


@dataclass(frozen=True, kw_only=True)
class EcoAnt:
    """An ant with a reward for forward velocity and a cost for effort."""

    engine: EngineName = "auto"
    """Physics: "native" (C MuJoCo), "mjx" (JAX), or "auto": native on a CPU and mjx elsewhere."""
    horizon: Count = 1000
    """Episodes are truncated after this many steps."""
    frame_skip: Count = 5
    """Time steps of 0.01 s per step of the environment."""
    noise_scale: Amount = 0.1
    """Standard deviation of the noise added to each component of an action."""
    healthy_bonus: Amount = 1.0
    """Reward per step for being alive; 0 leaves forward velocity only."""
    control_cost: Amount = 1.0
    """Multiple of the cost that is subtracted from the reward; 0: only the constraint uses it."""
    battery: bool = True
    """Whether the observation ends with the remaining fraction of the battery."""
    battery_limit: Positive = 500.0
    """Energy of a full battery, in units of the cost."""
    terminate_when_empty: bool = True
    """Whether an empty battery ends the episode."""
    terminate_when_unhealthy: bool = True
    """Whether a torso below 0.2 m or above 1 m ends the episode; if not, it only loses the healthy
    bonus."""
    reset_noise: Amount = 0.1
    """Half-width of the uniform noise on initial positions, and deviation of the initial
    velocities."""

    def __post_init__(self):
        convert_fields(self)

    default_constraint: ClassVar = Chance(limit=150.0, epsilon=0.02)
    largest_step_cost: ClassVar = 4.0
    drawing: ClassVar = "canary.rendering.eco_ant:draw"

    @property
    def observation_size(self) -> int:
        """Position without x and y (13), velocity (14), and the battery."""
        return 27 + self.battery

    @property
    def action_space(self) -> Continuous:
        """Torques of hip 4, ankle 4, hip 1, ankle 1, hip 2, ankle 2, hip 3, ankle 3; 1 means 150 N
        m."""
        return Continuous(JOINTS)

    @property
    def normalise_observation(self) -> bool:
        return True

    @property
    def physics(self) -> Engine:
        """The model with its physics engine."""
        return _engine(resolve(self.engine), self.frame_skip)

    @property
    def model(self) -> Any:
        """The `mujoco.MjModel`, for drawings and measurements."""
        return self.physics.model

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        """A noisy stance, without simulation."""
        key_position, key_velocity = jax.random.split(key)
        scale = self.reset_noise
        noise = jax.random.uniform(key_position, (15,), minval=-scale, maxval=scale)
        # A copy in the right precision: JAX may cache a shared constant in another precision.
        position = jnp.asarray(INITIAL_POSITION.astype(noise.dtype)) + noise
        quaternion = position[3:POSE] / jnp.linalg.norm(position[3:POSE])
        qpos = position.at[3:POSE].set(quaternion)
        qvel = scale * jax.random.normal(key_velocity, (14,))
        physics = PhysicsState(qpos, qvel, jnp.zeros((), bool))
        inner = AntState(physics, jnp.zeros(()) + self.battery_limit)
        return first_state(inner, self._observe(inner))

    def step(
        self, state: EnvironmentState, action: Float[Array, "action"], key: PRNGKeyArray
    ) -> EnvironmentState:
        """One step of 0.05 s; the key draws the noise on the action."""
        before: AntState = state.inner
        executed, missing = self._execute(action, key)
        physics = self.physics.step(before.physics, executed)
        cost = 0.5 * jnp.sum(executed**2)
        after = AntState(physics, before.battery - cost)
        velocity = (physics.qpos[0] - before.physics.qpos[0]) / (TIME_STEP * self.frame_skip)
        healthy = self._is_healthy(physics)
        bonus = self.healthy_bonus * (healthy | self.terminate_when_unhealthy)
        terminated = missing | physics.diverged
        if self.terminate_when_unhealthy:
            terminated |= ~healthy
        if self.terminate_when_empty:
            terminated |= after.battery <= 0
        time = state.time + 1
        return EnvironmentState(
            inner=after,
            observation=self._observe(after),
            reward=velocity + bonus - self.control_cost * cost,
            cost=cost,
            terminated=terminated,
            truncated=(time >= self.horizon) & ~terminated,
            time=time,
        )

    def _execute(
        self, action: Float[Array, "action"], key: PRNGKeyArray
    ) -> tuple[Float[Array, "action"], Bool[Array, ""]]:
        """The executed action, and whether a component is NaN. A NaN counts as full effort, the
        highest cost, and ends the episode."""
        if jnp.shape(action) != (JOINTS,):
            raise CanaryError(
                f"An action of EcoAnt is {JOINTS} numbers; this one has the shape "
                f"{jnp.shape(action)}."
            )
        missing = jnp.isnan(action)
        noisy = action + self.noise_scale * jax.random.normal(key, (JOINTS,))
        return jnp.where(missing, 1.0, jnp.clip(noisy, -1.0, 1.0)), missing.any()

    def _is_healthy(self, physics: PhysicsState) -> Bool[Array, ""]:
        lowest, highest = HEALTHY_HEIGHT
        return (physics.qpos[2] >= lowest) & (physics.qpos[2] <= highest)

    def _observe(self, state: AntState) -> Float[Array, "obs"]:
        parts = [state.physics.qpos[2:], state.physics.qvel]
        if self.battery:
            parts.append(jnp.maximum(state.battery / self.battery_limit, 0.0)[None])
        return jnp.concatenate(parts)


@lru_cache(maxsize=8)
def _engine(name: EngineName, frame_skip: int) -> Engine:
    """The engine that all EcoAnts with these settings share: model, threads and compiled programs."""
    return make_engine(name, load_model("eco_ant.xml"), frame_skip)
