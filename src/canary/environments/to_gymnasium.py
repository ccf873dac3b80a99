"""canary's environments as Gymnasium environments, with the cost in info["cost"]."""

from typing import Any

import jax
import numpy as np

from canary.environments import ENVIRONMENTS
from canary.environments.protocol import Discrete, Environment
from canary.errors import CanaryError

try:
    import gymnasium
except ModuleNotFoundError:
    raise CanaryError(
        "to_gymnasium needs the package gymnasium; install canary-rl[gymnasium]."
    ) from None


class AsGymnasium(gymnasium.Env):
    """One environment, its key and its state."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as in Gymnasium

    def __init__(self, environment: Environment):
        self.environment = environment
        size, space = environment.observation_size, environment.action_space
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        if isinstance(space, Discrete):
            self.action_space: Any = gymnasium.spaces.Discrete(space.count)
        else:
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (space.size,), np.float32)
        self._reset, self._step = jax.jit(environment.reset), jax.jit(environment.step)
        self._key: Any = None
        self._state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._state = self._reset(self._draw())
        return self._observation(), {"cost": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise CanaryError("Call reset() before the first step().")
        if not self.action_space.contains(np.asarray(action, self.action_space.dtype)):
            raise CanaryError(f"The action {action!r} is not in {self.action_space}.")
        self._state = state = self._step(
            self._state, np.asarray(action, self.action_space.dtype), self._draw()
        )
        flags = bool(state.terminated), bool(state.truncated)
        return self._observation(), float(state.reward), *flags, {"cost": float(state.cost)}

    def _draw(self) -> Any:
        self._key, drawn = jax.random.split(self._key)
        return drawn

    def _observation(self) -> np.ndarray:
        return np.asarray(self._state.observation)


def to_gymnasium(environment: str | Environment) -> AsGymnasium:
    """An environment (or the name of one of canary's) with Gymnasium's interface."""
    if isinstance(environment, str):
        if environment not in ENVIRONMENTS:
            raise CanaryError(f"There is no environment called {environment!r}; see `canary list`.")
        environment = ENVIRONMENTS[environment]()
    if isinstance(environment, type) or not isinstance(environment, Environment):
        raise CanaryError(f"to_gymnasium takes an environment or its name, not {environment!r}.")
    return AsGymnasium(environment)
