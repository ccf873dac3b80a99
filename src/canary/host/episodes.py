"""Episodes on the host as pure functions of (seed, actions so far); live environments are a cache.

An environment that draws all its randomness from the seed of its reset is determined by that seed
and the actions since, so these are the state that training keeps. After a resume an environment is
reset with the seed, and the actions are replayed.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from canary.host.player import Player, Recipe
from canary.host.rows import TAIL, LocalRow, WorkerRow

SEED_BITS = 0x7FFFFFFF  # many environments take seeds of 31 bits only

# The columns of a table of lanes after the observation: the last step, then the sums of the episode
REWARD, COST, TERMINATED, TRUNCATED, TIME, SPENT, DISCOUNT, RETURN, LENGTH, VALID = range(-10, 0)
COLUMNS = 10


class Episodes:
    """One episode per lane. The arrays are changed in place.

    `identity`: two numbers drawn at the reset; the first is the seed. `steps`: actions since the
    reset, which differ from the clock (`TIME`) of an episode that started in mid-clock. `actions`:
    those actions. `table`: what a lane shows (`rollout.Lane`), one row per lane.
    """

    def __init__(self, recipe: Recipe, first: Player, lanes: int, workers: int):
        workers = min(workers, lanes)
        shared = WorkerRow(recipe, lanes, workers) if workers else None
        self.row = shared or LocalRow(recipe, range(lanes))
        self._live = np.zeros(lanes, bool)  # whether the environment is in the state of the arrays
        self.everyone = np.arange(lanes)
        self.identity = np.zeros((lanes, 2), np.uint32)
        self.steps = np.zeros(lanes, np.int32)
        self.actions = np.zeros((lanes, first.horizon, first.action_size), np.float32)
        self.table = np.zeros((lanes, first.observation_size + COLUMNS), np.float32)
        self._fresh = np.zeros(COLUMNS, np.float32)
        self._fresh[[DISCOUNT, VALID]] = 1.0

    @property
    def done(self) -> Bool[np.ndarray, "lane"]:
        return (self.table[:, TERMINATED] > 0) | (self.table[:, TRUNCATED] > 0)

    def start(self, lanes: Int[np.ndarray, "some"], identity: UInt32[np.ndarray, "some 2"]) -> None:
        """Start new episodes in these lanes."""
        self._live[lanes] = False
        results = self._reset(lanes, identity, [self.actions[0, :0]] * len(lanes))
        self.table[lanes, :REWARD], self.table[lanes, REWARD:] = results[:, :-TAIL], self._fresh
        self.identity[lanes], self.steps[lanes], self._live[lanes] = identity, 0, True

    def _reset(self, lanes: np.ndarray, identity: np.ndarray, actions: list[np.ndarray]) -> Any:
        """Reset these lanes and replay actions; the results of `rows`."""
        seeds = (identity[:, 0] & SEED_BITS).tolist()
        return self.row.reset(lanes.tolist(), seeds, actions)

    def step(self, lanes: Any, action: np.ndarray, cost_discount: float) -> None:
        """One step in these lanes (an array of their numbers, or a slice), none of which is
        done."""
        table = self.table[lanes]
        action = action.reshape(len(table), -1)
        self._live[lanes] = False
        table[:, :TIME] = self.row.step(self.everyone[lanes].tolist(), action)
        self.actions[self.everyone[lanes], self.steps[lanes]] = action
        self.steps[lanes] += 1
        table[:, TIME] += 1
        table[:, LENGTH] += 1
        is_late = table[:, TIME] >= self.actions.shape[1]  # the horizon
        table[:, TRUNCATED] = (is_late | (table[:, TRUNCATED] > 0)) & (table[:, TERMINATED] == 0)
        table[:, SPENT] += table[:, DISCOUNT] * table[:, COST]
        table[:, DISCOUNT] *= np.float32(cost_discount)
        table[:, RETURN] += table[:, REWARD]
        self.table[lanes], self._live[lanes] = table, True

    def play(
        self,
        lanes: Int[np.ndarray, "some"],
        identity: UInt32[np.ndarray, "some 2"],
        choose: Callable[[int], np.ndarray],
        cost_discount: float = 1.0,
    ) -> Iterator[Int[np.ndarray, "moved"]]:
        """One episode in each of these lanes, to its end; `choose(time)` gives the actions of all
        lanes. Yields the lanes that moved, after the resets and after every step."""
        self.start(lanes, identity)
        yield lanes
        time = 0
        while len(lanes):
            self.step(lanes, choose(time)[lanes], cost_discount)
            yield lanes
            lanes, time = lanes[~self.done[lanes]], time + 1

    def take_up(
        self,
        identity: UInt32[np.ndarray, "lane 2"],
        steps: Int[np.ndarray, "lane"],
        actions: Float[np.ndarray, "lane time action"],
        table: Float[np.ndarray, "lane column"],
    ) -> Bool[np.ndarray, "lane"]:
        """Continue from these states: where the live environment is in another state, it is reset
        and the actions are replayed. Returns for which lanes that worked."""
        past = np.arange(actions.shape[1]) < steps[:, None]
        same = ((self.actions == actions).all(2) | ~past).all(1)
        here = self._live & (self.identity == identity).all(1) & (self.steps == steps) & same
        moved = np.flatnonzero(~here)
        self.identity[:], self.steps[:], self.table[:] = identity, steps, table
        self.actions[moved] = actions[moved]
        if len(moved):
            played = [actions[lane, : steps[lane]] for lane in moved]
            results = self._reset(moved, identity[moved], played)
            seen, before = results[:, :-TAIL], table[moved, :REWARD]
            close = np.isclose(seen, before, rtol=1e-5, atol=1e-6, equal_nan=True).all(1)
            self._live[moved] = close & ~results[:, -2:].any(1)
        return self._live.copy()
