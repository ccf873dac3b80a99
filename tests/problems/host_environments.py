"""Gymnasium environments: a noisy walk that costs below zero, and ways to go wrong."""

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """x' = x + drift a + noise; reward x', info["cost"] = max(-x', 0); ends above 4."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(
        self, drift: float = 0.5, noise: float = 1.0, fails_at: int = 0, how: str = "raise"
    ):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Box(
            np.array([-1.0, 0.0], np.float32), np.array([3.0, 1.0], np.float32)
        )
        self.drift, self.noise, self.fails_at, self.how = drift, noise, fails_at, how

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.time = float(self.np_random.normal()), 0
        return self._see(), {}

    def step(self, action):
        self.time += 1
        if self.fails_at and self.time == self.fails_at:
            self._fail()
        self.x += self.drift * float(action[0]) + self.noise * float(self.np_random.normal())
        return self._see(), self.x, self.x > 4, False, {"cost": max(-self.x, 0.0)}

    def _fail(self):
        if self.how == "nan":
            self.x = float("nan")
            return
        raise RuntimeError("the motor is stuck")

    def _see(self):
        return np.array([self.x, self.time / 10], np.float32)


class DrawnWalk(Walk):
    """A picture tells the time by its height, and where the walk is by its colour."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"]}

    def __init__(self, render_mode=None, picture="good", **arguments):
        super().__init__(**arguments)
        self.render_mode, self.picture = render_mode, picture

    def render(self):
        assert self.render_mode == "rgb_array"
        if self.picture == "text":
            return "x"
        return np.full((10 + self.time, 40, 3), shade(self.x), np.uint8)


def shade(x):
    """The colour of a place."""
    return int(np.clip(128 + 20 * x, 1, 254))


class Forgetful(Walk):
    """Its noise does not come from its seed."""

    def step(self, action):
        self.x += float(np.random.default_rng().normal())
        return super().step(action)


class SixValues(Walk):
    """Safety-Gymnasium's form of a step."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, info["cost"], terminated, truncated, {}


class Rooms(gymnasium.Env):
    """Counted rooms and counted moves, neither of which begins at 0."""

    def __init__(self):
        self.observation_space = spaces.Discrete(5, start=10)
        self.action_space = spaces.Discrete(3, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room = int(self.np_random.integers(5))
        return 10 + self.room, {}

    def step(self, action):
        self.room = (self.room + int(action)) % 5
        return 10 + self.room, 1.0, False, False, {"cost": float(self.room == 0)}


def depth(before, action, after, info):
    """A cost function: how far below zero it is."""
    del before, action, info
    return max(-float(after[0]), 0.0)


class DrawnForgetful(DrawnWalk, Forgetful):
    """Another episode whenever it is played."""


WALK = "problems.host_environments:Walk"
