"""Episodes outside JAX as pure functions of (seed, actions so far).

If an environment draws all randomness from the seed of its reset, this seed and the actions since
determine it. Training stores the seed and the actions; live environments are a cache of them. After
a resume an environment is reset with the seed, and the actions are replayed.

Canary resets every episode with its own seed and reads the cost from `info`. Gymnasium's vector
environments reset automatically and merge the `info`, so they are not used.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from canary.errors import CanaryError
from canary.exporting.numpy_policy import environment_action, observation_rows
from canary.host.player import Player, Recipe
from canary.host.references import describe

SEED_BITS = 0x7FFFFFFF  # many environments accept seeds of at most 31 bits

# Columns of a table after the observation: the last step, then the sums of the episode
REWARD, COST, TERMINATED, TRUNCATED, TIME, LENGTH, SPENT, DISCOUNT, RETURN, VALID = range(-10, 0)
COLUMNS = 10
FRESH = np.zeros(COLUMNS, np.float32)
FRESH[[DISCOUNT, VALID]] = 1
STEP = TIME - REWARD  # columns of the last step


def blank(lanes: int, observation: int, horizon: int, action: int) -> tuple[np.ndarray, ...]:
    """The arrays of `Episodes` before the first reset."""
    return (
        np.zeros((lanes, 2), np.uint32),
        np.zeros(lanes, np.int32),
        np.zeros((lanes, horizon, action), np.float32),
        np.zeros((lanes, observation + COLUMNS), np.float32),
    )


class Episodes:
    """One episode per lane, each in its own environment. The arrays are changed in place.

    `identity`: two numbers drawn at the reset; the first is the seed. `steps`: number of actions
    since the reset; it differs from the clock (`TIME`) if the episode started at a later time.
    `actions`: these actions, then zeros. `table`: a row per lane, the data of `rollout.Lane`.
    """

    def __init__(self, recipe: Recipe, lanes: int, sizes: tuple[int, int, int]):
        self.players = [Player(recipe) for _ in range(lanes)]
        self.everyone = np.arange(lanes)
        self._label, self._interface = recipe.label, self.players[0].interface
        self._live = np.zeros(lanes, bool)  # whether the environment has the state of the arrays
        self.arrays = blank(lanes, *sizes)
        self.identity, self.steps, self.actions, self.table = self.arrays

    @property
    def done(self) -> Bool[np.ndarray, "lane"]:
        return self.table[:, TERMINATED] + self.table[:, TRUNCATED] > 0

    def start(
        self,
        lanes: Int[np.ndarray, "some"],
        identity: UInt32[np.ndarray, "some 2"],
        time: int | Int[np.ndarray, "some"] = 0,
    ) -> None:
        """Start new episodes in these lanes, with these times on their clocks."""
        self.identity[lanes], self.steps[lanes], self.actions[lanes] = identity, 0, 0
        self.table[lanes, :REWARD] = self._replay(lanes)[:, :-STEP]
        self.table[lanes, REWARD:] = FRESH
        self.table[lanes, TIME], self.table[lanes, VALID] = time, time == 0
        self._live[lanes] = True

    def step(
        self, lanes: Int[np.ndarray, "some"], action: np.ndarray, cost_discount: float
    ) -> None:
        """One step in these lanes; none of them may be done."""
        action, results = action.reshape(len(lanes), -1), []
        self._live[lanes] = False
        players = [self.players[lane] for lane in lanes]
        try:
            for player, one in zip(players, self._decoded(action), strict=True):
                results.append(player.step(one))
        except Exception as error:
            raise self._failure(lanes[len(results)], error) from error
        self.actions[lanes, self.steps[lanes]] = action
        self.steps[lanes] += 1
        table = self.table[lanes]
        table[:, :TIME] = self._joined(results)
        reward, cost, terminated, truncated, time, _, spent, discount, gained, _ = table.T[REWARD:]
        table[:, TIME : LENGTH + 1] += 1
        late = time >= self.actions.shape[1]  # the horizon
        truncated[:] = np.maximum(truncated, late) > terminated
        spent += discount * cost
        discount *= np.float32(cost_discount)
        gained += reward
        self.table[lanes], self._live[lanes] = table, True

    def play(
        self,
        lanes: Int[np.ndarray, "some"],
        identity: UInt32[np.ndarray, "some 2"],
        choose: Callable[[int], np.ndarray],
        cost_discount: float = 1.0,
    ) -> Iterator[Int[np.ndarray, "moved"]]:
        """Play one whole episode in each of these lanes; `choose(time)` gives the actions of all
        lanes. After the resets and after every step, yields the lanes that moved."""
        self.start(lanes, identity)
        yield lanes
        time = 0
        while len(lanes):
            self.step(lanes, choose(time)[lanes], cost_discount)
            yield lanes
            lanes, time = lanes[~self.done[lanes]], time + 1

    def take_up(self, *saved: Any) -> Bool[np.ndarray, "lane"]:
        """Continue from saved `arrays`. A live environment in another state is reset, and its
        actions are replayed. Returns for each lane whether its episode was restored."""
        pairs = list(zip(self.arrays, map(np.asarray, saved), strict=True))
        same = [(own == other).reshape(len(own), -1).all(1) for own, other in pairs[:3]]
        moved = np.flatnonzero(~(self._live & np.all(same, axis=0)))
        for own, other in pairs:
            own[:] = other
        if len(moved):
            results, before = self._replay(moved), self.table[moved, :REWARD]
            close = np.isclose(results[:, :-STEP], before, rtol=1e-5, atol=1e-6, equal_nan=True)
            self._live[moved] = close.all(1) & ~results[:, -2:].any(1)
        return self._live.copy()

    def _replay(self, lanes: Int[np.ndarray, "some"]) -> Float[np.ndarray, "some result"]:
        """Reset these lanes and replay their actions. Returns the results of the last step."""
        self._live[lanes], results = False, []
        for lane in lanes:
            player, past = self.players[lane], self.actions[lane, : self.steps[lane]]
            try:
                result = player.reset(int(self.identity[lane, 0] & SEED_BITS))
                for action in self._decoded(past):
                    if not any(result[-2:]):  # an environment that ignores seeds may end earlier
                        result = player.step(action)
            except Exception as error:
                raise self._failure(lane, error) from error
            results.append(result)
        return self._joined(results)

    # Rows are converted together, because converting an array takes as long as a small step.

    def _decoded(self, actions: Float[np.ndarray, "row action"]) -> Any:
        """Actions of the policy in the form of the environment."""
        is_counted = self._interface["action"]["kind"] == "counted"
        return environment_action(actions[:, 0] if is_counted else actions, self._interface)

    def _joined(self, results: list[tuple[Any, ...]]) -> Float[np.ndarray, "row result"]:
        """A row per result: the observation in the form of the policy, then the last step."""
        observations, *last = zip(*results, strict=True)
        try:
            seen = observation_rows(observations, self._interface)
        except ValueError as error:
            raise CanaryError(
                f"{self._label} failed: an observation does not fit observation_space. {error}"
            ) from None
        return np.concatenate([seen, np.array(last, np.float32).T], 1)

    def _failure(self, lane: int, error: Exception) -> CanaryError:
        reason = str(error) if isinstance(error, CanaryError) else describe(error)
        steps = self.players[lane].steps
        when = f"in step {steps} of its episode" if steps else "while it was reset"
        return CanaryError(f"{self._label} failed in lane {lane} {when}: {reason}.")
