"""A row of environments in this process: slot i is made when it is first used, and used again for
later episodes."""

import threading
from collections.abc import Sequence
from typing import Any, Protocol

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
        seen = []
        try:
            for slot, seed in zip(slots, seeds, strict=True):
                if slot not in self._players:
                    with _MAKING:
                        self._players[slot], self._spare = self._spare or Player(self._recipe), None
                seen.append(self._players[slot].reset(seed))
        except Exception as error:
            raise SlotFailed(len(seen), _reason(error)) from error
        return _encoded(self._players[slots[0]], seen)

    def step(
        self, slots: Sequence[int], actions: Float[np.ndarray, "row action"]
    ) -> Float[np.ndarray, "row result"]:
        players = [self._players[slot] for slot in slots]
        first, seen, tails = players[0], [], []
        try:
            for player, action in zip(players, first.actions(actions), strict=True):
                observation, tail = player.step(action)
                seen.append(observation)
                tails.append(tail)
        except Exception as error:
            raise SlotFailed(len(seen), _reason(error)) from error
        results = np.empty((len(slots), first.observation_size + TAIL), np.float32)
        results[:, :-TAIL], results[:, -TAIL:] = _encoded(first, seen), tails
        return results

    def close(self) -> None:
        for player in (*self._players.values(), *([self._spare] if self._spare else [])):
            player.close()
        self._players, self._spare = {}, None


def _encoded(player: Player, observations: list[Any]) -> Float[np.ndarray, "row obs"]:
    """All observations as rows; if they cannot be, the row that is to blame."""
    try:
        return player.encode(observations)
    except Exception as failure:
        for row, observation in enumerate(observations):
            try:
                player.encode([observation])
            except Exception as error:
                raise SlotFailed(row, _reason(error)) from error
        raise SlotFailed(0, _reason(failure)) from failure


def _reason(error: Exception) -> str:
    return str(error).removesuffix(".") if isinstance(error, CanaryError) else describe(error)
