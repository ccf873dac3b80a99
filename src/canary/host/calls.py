"""What a compiled program calls on the host: whole batches of lanes in and out, as plain arrays.

A program knows the environments that it steps by a token, one of its arguments: so it is the same
for all environments whose arrays have the same shapes, whatever their settings are.

A failure is remembered and told by numbers that are not, which end whatever runs. A program calls
these functions once per step, so what they do beside stepping environments counts: for sixteen
lanes of a small environment a handful of numpy calls takes as long as a lane.
"""

import itertools
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from canary.errors import CanaryError
from canary.host.episodes import Episodes, Rows
from canary.host.player import TAIL
from canary.host.references import describe

_CALLS: weakref.WeakValueDictionary[int, "HostCalls"] = weakref.WeakValueDictionary()
_TOKENS = itertools.count()


def reset(token: Int[np.ndarray, "*batch"], *given: np.ndarray) -> np.ndarray:
    """`HostCalls.reset` of the environments that the token stands for, the same in all lanes."""
    return _CALLS[token.item(0)].reset(*given)


def restart(token: Int[np.ndarray, "*batch"], *given: np.ndarray) -> np.ndarray:
    """`HostCalls.restart`, likewise."""
    return _CALLS[token.item(0)].restart(*given)


def step(token: Int[np.ndarray, "*batch"], *given: np.ndarray) -> np.ndarray:
    """`HostCalls.step`, likewise."""
    return _CALLS[token.item(0)].step(*given)


class HostCalls:
    """Resets and steps of episodes. Batches may have any number of axes, or none."""

    def __init__(self, label: str, observation_size: int, episodes: Episodes):
        self.token = next(_TOKENS)
        _CALLS[self.token] = self
        self._label, self._size, self._episodes = label, observation_size, episodes
        self._failures: list[str] = []

    def failure(self) -> str | None:
        """The sentence about the first failure since this was last asked."""
        if not self._failures:
            return None
        first = self._failures[0]
        self._failures.clear()
        return first

    def reset(self, identity: UInt32[np.ndarray, "*batch 2"]) -> Float[np.ndarray, "*batch obs"]:
        flat = identity.reshape(-1, 2)
        return self._begin(flat, _all_of(len(flat))).reshape(*identity.shape[:-1], -1)

    def restart(
        self,
        identity: UInt32[np.ndarray, "*batch 2"],
        done: Bool[np.ndarray, "*batch"],
        old: UInt32[np.ndarray, "*batch 2"],
    ) -> Float[np.ndarray, "*batch obs"]:
        """Reset what is done; the other rows hold nothing."""
        if done.ndim != 1:
            flat = self.restart(identity.reshape(-1, 2), done.reshape(-1), old.reshape(-1, 2))
            return flat.reshape(*done.shape, -1)
        rows = np.flatnonzero(done)
        self._episodes.release(old[rows])
        return self._begin(identity, rows)

    def step(
        self,
        identity: UInt32[np.ndarray, "*batch 2"],
        steps: Int[np.ndarray, "*batch"],
        done: Bool[np.ndarray, "*batch"],
        action: Float[np.ndarray, "*batch action"],
        observation: Float[np.ndarray, "*batch obs"],
        actions: Float[np.ndarray, "*batch time action"],
    ) -> Float[np.ndarray, "*batch result"]:
        """Step what is not done; the rows of what is done are zero."""
        given, count = (identity, steps, done, action, observation, actions), steps.size
        if steps.ndim != 1:
            axes = steps.ndim
            flat = self.step(*(each.reshape(count, *each.shape[axes:]) for each in given))
            return flat.reshape(*steps.shape, -1)
        states = Rows(identity, steps, actions, observation)
        if not done.any():  # nearly always: no lane waits for a reset
            answer = self._guard(self._episodes.step, states, action, _all_of(count))
            if answer is not np.nan:  # else it failed, and every lane is told so
                return answer
        lanes = np.flatnonzero(~done)
        result = np.zeros((count, self._size + TAIL), np.float32)
        if len(lanes):
            result[lanes] = self._guard(
                self._episodes.step, states.pick(lanes), action[lanes], lanes
            )
        return result

    def _begin(
        self, identity: UInt32[np.ndarray, "lane 2"], rows: Int[np.ndarray, "row"]
    ) -> Float[np.ndarray, "lane obs"]:
        result = np.zeros((len(identity), self._size), np.float32)
        if len(rows):
            result[rows] = self._guard(self._episodes.reset, identity[rows], rows)
        return result

    def _guard(self, work: Callable[..., np.ndarray], *given: Any) -> Any:
        """What the work returns, or not a number where it failed, now or before."""
        if self._failures:
            return np.nan
        try:
            return work(*given)
        except Exception as error:
            self._failures.append(
                str(error)
                if isinstance(error, CanaryError)
                else f"{self._label} failed: {describe(error)}."
            )
            return np.nan


@cache
def _all_of(count: int) -> Int[np.ndarray, "lane"]:
    return np.arange(count)
