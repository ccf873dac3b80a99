"""Episodes on the host as pure functions of (seed, actions so far), with live environments as a
cache.

An episode of an environment that draws its randomness from the seed of its reset is determined by
that seed and by the actions since. That is what training keeps as its state. A live environment
that stands where the state says is stepped; if there is none, as after a resume, one is reset and
the actions are played again.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from canary.errors import CanaryError
from canary.host.player import TAIL
from canary.host.stage import SlotFailed, Stage

# Environments that are kept, before the one that was not used for longest gives way
MOST_LIVE = 4096
NONE = -1  # no slot
SEED_BITS = 0x7FFFFFFF  # many environments take seeds of 31 bits only


class Rows(NamedTuple):
    """The states that one call is about: identity, number of actions since the reset, those
    actions, what was seen."""

    identity: UInt32[np.ndarray, "row 2"]
    steps: Int[np.ndarray, "row"]
    actions: Float[np.ndarray, "row time action"]
    observation: Float[np.ndarray, "row obs"]

    def pick(self, rows: Int[np.ndarray, "some"]) -> "Rows":
        return Rows(
            self.identity[rows], self.steps[rows], self.actions[rows], self.observation[rows]
        )


class Episodes:
    """Live episodes by identity. Calls may come from several threads, each about identities of its
    own.

    A call about sixteen episodes of a small environment should take little longer than their steps.
    So an identity is one number (`_keys`), and what is asked of every lane is asked of lists: for
    so few numbers they are quicker than arrays.
    """

    def __init__(self, label: str, open_stage: Callable[[int], Stage]):
        self._label, self._open_stage = label, open_stage
        self._stage: Stage | None = None
        self._live: dict[int, int] = {}  # identity to slot, the oldest episode first
        self._steps = [0] * MOST_LIVE  # by slot
        self._free: list[int] = []
        self._slots = 0
        self._lock = threading.RLock()

    def reset(
        self, identity: UInt32[np.ndarray, "row 2"], lanes: Int[np.ndarray, "row"]
    ) -> Float[np.ndarray, "row obs"]:
        """Start the episodes of these identities; returns their first observations."""
        keys = _keys(identity)
        with self._lock:
            if self._stage is None:
                self._stage = self._open_stage(len(keys))
            slots = [self._slot(key) for key in keys]
        try:
            return self._stage.reset(slots, (identity[:, 0] & SEED_BITS).tolist())
        except SlotFailed as failed:
            raise self._sentence(failed, "while it was reset", lanes) from failed

    def step(
        self, rows: Rows, action: Float[np.ndarray, "row action"], lanes: Int[np.ndarray, "row"]
    ) -> Float[np.ndarray, "row result"]:
        """One step of each; `lanes` are the numbers that a sentence about a failure gives the
        rows."""
        keys = _keys(rows.identity)
        slots = self._standing(keys, rows.steps.tolist())
        if NONE in slots:
            missing = np.flatnonzero(np.array(slots) == NONE)
            lost = missing[~self.revive(rows.pick(missing), lanes[missing])]
            if len(lost):
                raise CanaryError(
                    f"{self._label} cannot be brought back to step {rows.steps[lost[0]]} of the "
                    "episode of lane "
                    f"{lanes[lost[0]]}: the same seed and actions led to another observation."
                )
            slots = [self._live[key] for key in keys]
        results = self._play(slots, action, lanes)
        ended = results[:, -2:]
        if ended.any():
            for row in np.flatnonzero(ended.any(1)):
                self._release(keys[row])
        return results

    def revive(self, rows: Rows, lanes: Int[np.ndarray, "row"]) -> Bool[np.ndarray, "row"]:
        """Play the actions of these episodes again; says which then show the observation that they
        showed."""
        seen = np.array(self.reset(rows.identity, lanes))
        keys = _keys(rows.identity)
        slots = [self._live[key] for key in keys]
        ended = np.zeros(len(slots), bool)
        for time in range(int(rows.steps.max(initial=0))):
            going = np.flatnonzero((rows.steps > time) & ~ended)
            if not len(going):  # all of them ended earlier than they did before
                break
            results = self._play(
                [slots[row] for row in going], rows.actions[going, time], lanes[going]
            )
            seen[going] = results[:, :-TAIL]
            ended[going] = results[:, -2:].any(1)
        same = (
            np.isclose(seen, rows.observation, rtol=1e-5, atol=1e-6, equal_nan=True).all(1) & ~ended
        )
        for row in np.flatnonzero(~same):
            self._release(keys[row])
        return same

    def _standing(self, keys: list[int], steps: list[int]) -> list[int]:
        """The slots of these episodes, and none for an episode that is not live or stands
        elsewhere."""
        live, reached = self._live, self._steps
        slots = [live.get(key, NONE) for key in keys]
        return [
            slot if reached[slot] == step else NONE for slot, step in zip(slots, steps, strict=True)
        ]

    def release(self, identity: UInt32[np.ndarray, "row 2"]) -> None:
        """Forget episodes; their environments serve others."""
        for key in _keys(identity):
            self._release(key)

    def close(self) -> None:
        """End all environments and workers. A later call starts new ones."""
        with self._lock:
            if self._stage is not None:
                self._stage.close()
            self._stage, self._slots, self._free = None, 0, []
            self._live.clear()

    def _play(
        self,
        slots: list[int],
        action: Float[np.ndarray, "row action"],
        lanes: Int[np.ndarray, "row"],
    ) -> Float[np.ndarray, "row result"]:
        assert self._stage is not None
        try:
            results = self._stage.step(slots, action)
        except SlotFailed as failed:
            step = self._steps[slots[failed.row]] + 1
            raise self._sentence(failed, f"in step {step} of its episode", lanes) from failed
        for slot in slots:
            self._steps[slot] += 1
        return results

    def _release(self, key: int) -> None:
        with self._lock:
            if (slot := self._live.pop(key, None)) is not None:
                self._free.append(slot)

    def _slot(self, key: int) -> int:
        """A slot for a new episode: its own if it is live, a free one, a new one, or that of the
        oldest."""
        self._release(key)
        if self._free:
            slot = self._free.pop()
        elif self._slots < MOST_LIVE:
            slot, self._slots = self._slots, self._slots + 1
        else:
            slot = self._live.pop(next(iter(self._live)))
        self._live[key], self._steps[slot] = slot, 0
        return slot

    def _sentence(
        self, failed: SlotFailed, when: str, lanes: Int[np.ndarray, "row"]
    ) -> CanaryError:
        reason = failed.reason.removesuffix(".")
        return CanaryError(f"{self._label} failed in lane {lanes[failed.row]} {when}: {reason}.")


def _keys(identity: UInt32[np.ndarray, "row 2"]) -> list[int]:
    """Both numbers of each identity as one."""
    return np.ascontiguousarray(identity).view(np.uint64)[:, 0].tolist()
