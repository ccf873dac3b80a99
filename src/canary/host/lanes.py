"""What a program asks of environments on the host: rows of a batch of any shape in, rows out.

Numpy only. A failure is remembered and told by numbers that are not finite, which end whatever
runs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from canary.errors import CanaryError
from canary.host.episodes import Episodes, Rows
from canary.host.player import TAIL
from canary.host.references import describe
from canary.host.stage import Stage


class Lanes:
    """The episodes of all lanes of a program, and the failures among them."""

    def __init__(self, label: str, open_stage: Callable[[int], Stage]):
        self.episodes = Episodes(label, open_stage)
        self._label, self._failures = label, list[str]()

    def first_failure(self) -> str | None:
        """The sentence about the first failure since this was last asked."""
        if not self._failures:
            return None
        first = self._failures[0]
        self._failures.clear()
        return first

    def reset(self, size: int, identity: np.ndarray) -> np.ndarray:
        """Begin an episode in every lane; returns the observations, of `size` numbers."""
        return self._reset(size, np.arange(identity.size // 2), identity)

    def _reset(self, size: int, rows: np.ndarray, identity: np.ndarray) -> np.ndarray:
        flat = identity.reshape(-1, 2)
        result = np.zeros((len(flat), size), np.float32)
        if len(rows):
            result[rows] = self._guard(lambda: self.episodes.reset(flat[rows], rows))
        return result.reshape(*identity.shape[:-1], -1)

    def restart(
        self, size: int, identity: np.ndarray, done: np.ndarray, old: np.ndarray
    ) -> np.ndarray:
        """Begin an episode in the lanes that are done; the others get zeros, which nobody reads."""
        rows = np.flatnonzero(done)
        self.episodes.release(old.reshape(-1, 2)[rows])
        return self._reset(size, rows, identity)

    def step(
        self,
        identity: np.ndarray,
        steps: np.ndarray,
        done: np.ndarray,
        action: np.ndarray,
        observation: np.ndarray,
        actions: np.ndarray,
    ) -> np.ndarray:
        """One step of every lane that is not done: observation, reward, cost and both ends in a
        row."""
        batch, count = steps.shape, steps.size
        moves = action.reshape(count, -1)
        states = Rows(
            identity.reshape(count, 2),
            steps.reshape(count),
            actions.reshape(count, *actions.shape[-2:]),
            observation.reshape(count, -1),
        )
        if not done.any():  # nearly always: no lane waits for a reset
            answer = self._guard(lambda: self.episodes.step(states, moves, np.arange(count)))
            if np.ndim(answer):  # else it failed, which the next call tells again for every lane
                return answer.reshape(*batch, -1)
        lanes = np.flatnonzero(~done.reshape(count))
        result = np.zeros((count, observation.shape[-1] + TAIL), np.float32)
        if len(lanes):
            result[lanes] = self._guard(
                lambda: self.episodes.step(states.pick(lanes), moves[lanes], lanes)
            )
        return result.reshape(*batch, -1)

    def _guard(self, work: Callable[[], np.ndarray]) -> Any:
        if self._failures:
            return np.nan
        try:
            return work()
        except Exception as error:
            sentence = (
                str(error)
                if isinstance(error, CanaryError)
                else f"{self._label} failed: {describe(error)}."
            )
            self._failures.append(sentence)
            return np.nan
