"""A row of environments in this process: slot i is made when it is first used, and used again for
later episodes."""

import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float

from canary.errors import CanaryError
from canary.host.player import TAIL, Player, Recipe
from canary.host.references import describe

_MAKING = threading.Lock()  # registries of environments are not made for several threads


class SlotFailed(Exception):
    """A slot could not do what was asked: which of the rows it was, and half a sentence about
    why."""

    def __init__(self, row: int, reason: str):
        super().__init__(reason)
        self.row, self.reason = row, reason


class Stage(Protocol):
    """Environments by slot. Rows of one call belong to different slots."""

    def reset(self, slots: Sequence[int], seeds: Sequence[int]) -> Float[np.ndarray, "row obs"]: ...

    def step(
        self, slots: Sequence[int], actions: Float[np.ndarray, "row action"]
    ) -> Float[np.ndarray, "row result"]: ...

    def close(self) -> None: ...


class LocalStage:
    """Slots in this process."""

    def __init__(self, recipe: Recipe, first: Player | None = None):
        self._recipe = recipe
        self._players: dict[int, Player] = {}
        self._spare = first

    def reset(self, slots: Sequence[int], seeds: Sequence[int]) -> Float[np.ndarray, "row obs"]:
        rows = []
        for row, (slot, seed) in enumerate(zip(slots, seeds, strict=True)):
            try:
                if slot not in self._players:
                    with _MAKING:
                        self._players[slot], self._spare = self._spare or Player(self._recipe), None
                rows.append(self._players[slot].reset(int(seed)))
            except Exception as error:
                raise SlotFailed(row, _reason(error)) from error
        return np.stack(rows)

    def step(
        self, slots: Sequence[int], actions: Float[np.ndarray, "row action"]
    ) -> Float[np.ndarray, "row result"]:
        first = self._players[slots[0]]
        seen, tails = [], []
        for row, (slot, action) in enumerate(zip(slots, first.actions(actions), strict=True)):
            try:
                observation, tail = self._players[slot].advance(action)
            except Exception as error:
                raise SlotFailed(row, _reason(error)) from error
            seen.append(observation)
            tails.append(tail)
        # Once for all lanes: small arrays are slow to fill.
        results = np.empty((len(slots), first.observation_size + TAIL), np.float32)
        results[:, :-TAIL], results[:, -TAIL:] = seen, tails
        return results

    def close(self) -> None:
        for player in (*self._players.values(), *([self._spare] if self._spare else [])):
            player.close()
        self._players, self._spare = {}, None


def _reason(error: Exception) -> str:
    return str(error).removesuffix(".") if isinstance(error, CanaryError) else describe(error)
