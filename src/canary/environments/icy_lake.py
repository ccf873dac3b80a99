"""IcyLake: cross a frozen lake to the goal; every step that ends on ice costs 1.

The paper describes it in one sentence (section "Experiments"). The dynamics are those of
Gymnasium's FrozenLake-v1, except that ice has a cost and does not end the episode.

    next = move(position, direction),   direction = action      with probability 1 - 2 slip
                                                    action -+ 1  with probability slip each
    reward = 1{next is a goal}          cost = 1{next is ice}   (also if the border stops a move there)

The paper states neither slip nor horizon; `docs/environments/icy_lake.md` has the evidence for 1/3
and 100.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from canary.constraints import Chance
from canary.environments.protocol import Discrete, EnvironmentState, FiniteTables, first_state
from canary.errors import CanaryError
from canary.values import Count, Range, convert_fields

STANDARD_MAPS = {
    "4x4": "SFFF/FHFH/FFFH/HFFG",
    "8x8": "SFFFFFFF/FFFFFFFF/FFFHFFFF/FFFFFHFF/FFFHFFFF/FHHFFFHF/FHFFHFHF/FFFHFFFG",
}

# Change of row and column for left, down, right, up: neighbours in this cycle are perpendicular.
MOVES = np.array([[0, -1], [1, 0], [0, 1], [-1, 0]])


@dataclass(frozen=True, kw_only=True)
class IcyLake:
    """A lake of square tiles: S start, F frozen (safe), H ice (cost 1 per step that ends there), G
    goal."""

    map: str = "4x4"
    """"4x4", "8x8" (Gymnasium's maps) or your own rows joined by "/", for example
    "SFFF/FHFH/FFFH/HFFG"."""
    slip: Annotated[float, Range(0, 0.5)] = 1 / 3
    """Probability of a slide to each perpendicular side; the intended direction has 1 - 2 slip."""
    horizon: Count = 100
    """Episodes are truncated after this many steps."""

    def __post_init__(self):
        convert_fields(self)
        rows = self.rows
        letters = "".join(rows)
        is_rectangle = len({len(row) for row in rows}) == 1 and set(letters) <= set("SFHG")
        if not is_rectangle or letters.count("S") != 1 or "G" not in letters:
            raise CanaryError(
                'A map of IcyLake is "4x4", "8x8", or rows of equal length joined by "/", with '
                "exactly one S (start), at least one G (goal), F (frozen) and H (ice), not "
                f"{self.map!r:.60}."
            )
        start, goals = (np.argwhere(self._tiles == letter) for letter in "SG")
        moves = np.abs(goals - start).sum(axis=1).min()
        if moves > self.horizon:
            raise CanaryError(
                f"The goal of this map is {moves} moves away from the start; raise the horizon of "
                f"{self.horizon}."
            )

    default_constraint: ClassVar = Chance(limit=5.5, epsilon=0.02)
    largest_step_cost: ClassVar = 1.0
    drawing: ClassVar = "canary.rendering.icy_lake:draw"

    @property
    def observation_size(self) -> int:
        return self._tiles.size

    @property
    def action_space(self) -> Discrete:
        """0 left, 1 down, 2 right, 3 up."""
        return Discrete(4)

    @property
    def normalise_observation(self) -> bool:
        return False

    def reset(self, key: PRNGKeyArray) -> EnvironmentState:
        """The start tile; the key is not used."""
        del key
        position = jnp.asarray(self.start, jnp.int32)
        return first_state(position, self._observe(position))

    def step(
        self, state: EnvironmentState, action: Int[Array, ""], key: PRNGKeyArray
    ) -> EnvironmentState:
        """One move; the key draws the slip."""
        if jnp.shape(action) != ():
            raise CanaryError(
                f"An action of IcyLake is one number; this one has the shape {jnp.shape(action)}."
            )
        draw = jax.random.uniform(key)
        side = jnp.where(draw < self.slip, 0, jnp.where(draw < 2 * self.slip, 2, 1))
        position = jnp.asarray(self.successors)[state.inner, action, side]
        terminated = jnp.asarray(self.goal)[position]
        time = state.time + 1
        return EnvironmentState(
            inner=position,
            observation=self._observe(position),
            reward=terminated.astype(jnp.float32),
            cost=jnp.asarray(self.ice)[position].astype(jnp.float32),
            terminated=terminated,
            truncated=(time >= self.horizon) & ~terminated,
            time=time,
        )

    def _observe(self, position: Int[Array, ""]) -> Float[Array, "obs"]:
        return jax.nn.one_hot(position, self.observation_size, dtype=jnp.float32)

    # The lake as tables, which `step` and `canary.exact` share. Tiles are in row order.

    @cached_property
    def successors(self) -> Int[np.ndarray, "state action 3"]:
        """Next tiles for the directions action - 1, action, action + 1; moves over the border and
        moves from a goal stay."""
        height, width = self._tiles.shape
        row, column = np.divmod(np.arange(height * width), width)
        next_row = np.clip(row[:, None] + MOVES[:, 0], 0, height - 1)
        next_column = np.clip(column[:, None] + MOVES[:, 1], 0, width - 1)
        moved = next_row * width + next_column
        moved = np.where(self.goal[:, None], np.arange(height * width)[:, None], moved)
        directions = (np.arange(4)[:, None] + np.array([-1, 0, 1])) % 4
        return moved[:, directions].astype(np.int32)

    @cached_property
    def successor_probabilities(self) -> Float[np.ndarray, "3"]:
        return np.array([self.slip, 1 - 2 * self.slip, self.slip])

    def finite_tables(self) -> FiniteTables:
        """Tables from the arrays of `step`, so that simulation and exact results agree."""
        states, actions, _ = self.successors.shape
        transition = np.zeros((states, actions, states))
        state, action = np.indices((states, actions))
        for side, probability in enumerate(self.successor_probabilities):
            np.add.at(transition, (state, action, self.successors[:, :, side]), probability)
        return FiniteTables(
            transition=transition,
            reward=np.broadcast_to(self.goal.astype(float), transition.shape),
            cost=np.broadcast_to(self.ice.astype(float), transition.shape),
            terminal=self.goal,
            initial=np.eye(states)[self.start],
        )

    @cached_property
    def ice(self) -> Bool[np.ndarray, "state"]:
        return (self._tiles == "H").ravel()

    @cached_property
    def goal(self) -> Bool[np.ndarray, "state"]:
        return (self._tiles == "G").ravel()

    @cached_property
    def start(self) -> int:
        return int(np.flatnonzero((self._tiles == "S").ravel())[0])

    @property
    def rows(self) -> list[str]:
        """The letters of the tiles."""
        return STANDARD_MAPS.get(self.map, self.map).split("/")

    @cached_property
    def _tiles(self) -> np.ndarray:
        return np.array([list(row) for row in self.rows])
