"""The arena of Safety-Gymnasium's Goal task (level 1): where its objects are placed, and how the
robot's lidar sees them.

Placement. Every object has a keep-out radius. It is drawn uniformly from the square [-1.5, 1.5]^2
shrunk by that radius, again and again until it is at least the sum of both radii away from every
object placed before it. The order is robot, goal, eight hazards, vase; then the goal is drawn once
more against all others, as it is whenever it is reached. The rejection sampling is exact, in a loop
of small batches of draws. Under `vmap` that loop runs until all lanes have found a place: no
iteration at all in a step in which no robot reaches its goal.

Lidar. It tells how near the nearest object of a kind is, in each of 16 directions. An object at
distance r and angle phi (counted from the robot's front) has strength s = max(0, 3 - r) / 3 and
falls into bin b = floor(phi / w), w = 2 pi / 16, at the fraction f = phi / w - b of it. It shows as
s in bin b, f s in the next bin and (1 - f) s in the one before; every bin shows its strongest
object. Nothing hides anything, and objects are points.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

ARENA = 1.5  # half the side of the square
HAZARDS = 8
KEEP_OUT = np.array([0.4, 0.305, *[0.18] * HAZARDS, 0.15])  # robot, goal, hazards, vase
ROBOT, GOAL, FIRST_HAZARD, VASE = 0, 1, 2, 2 + HAZARDS
AWAY = 1000.0  # a coordinate of an absent object: out of the way, and out of the lidar's range

DRAWS = 16  # points per round; about one in five is free, so two rounds are rare and the rest rarer
ROUNDS = 625  # 10,000 draws as upstream, which gives up then; here the roomiest of them is taken

BINS = 16
RANGE = 3.0  # metres


class Layout(eqx.Module):
    """The positions of all objects; the vase is far away if there is none."""

    robot: Float[Array, "*batch 2"]
    goal: Float[Array, "*batch 2"]
    hazards: Float[Array, "*batch 8 2"]
    vase: Float[Array, "*batch 2"]


def sample_layout(key: PRNGKeyArray, *, vase: bool = True) -> Layout:
    """The layout at the start of an episode."""
    order = [ROBOT, GOAL, *range(FIRST_HAZARD, VASE), *([VASE] if vase else []), GOAL]

    def place(positions: Float[Array, "object 2"], item: tuple[Int[Array, ""], PRNGKeyArray]):
        index, key = item
        others = positions.at[index].set(AWAY)
        reach = jnp.asarray(KEEP_OUT, positions.dtype)
        point = _free_point(key, ARENA - reach[index], others, reach + reach[index])
        return positions.at[index].set(point), None

    nowhere = jnp.full((len(KEEP_OUT), 2), AWAY)
    positions, _ = jax.lax.scan(
        place, nowhere, (jnp.array(order), jax.random.split(key, len(order)))
    )
    return Layout(positions[ROBOT], positions[GOAL], positions[FIRST_HAZARD:VASE], positions[VASE])


def move_goal(layout: Layout, reached: Bool[Array, ""], key: PRNGKeyArray) -> Float[Array, "2"]:
    """A new place for the goal if it was reached, given where robot and vase are now; else its old
    place."""
    others = jnp.concatenate([layout.robot[None], layout.hazards, layout.vase[None]])
    distances = jnp.asarray(np.delete(KEEP_OUT, GOAL) + KEEP_OUT[GOAL], others.dtype)
    return _free_point(key, ARENA - KEEP_OUT[GOAL], others, distances, ~reached, layout.goal)


def _free_point(
    key: PRNGKeyArray,
    extent: Float[Array, ""] | float,
    others: Float[Array, "object 2"],
    distances: Float[Array, "object"],
    settled: Bool[Array, ""] | bool = False,
    point: Float[Array, "2"] | None = None,
) -> Float[Array, "2"]:
    """Uniform in [-extent, extent]^2, at least distances[i] from others[i]; or `point`, if that is
    settled."""
    start = jnp.zeros(2, others.dtype) if point is None else point
    room = jnp.where(settled, 0.0, -jnp.inf).astype(others.dtype)

    def unsettled(carry: tuple[Array, Array, Array]):
        round_, _, room = carry
        return (room < 0) & (round_ < ROUNDS)

    def draw(carry: tuple[Array, Array, Array]):
        round_, point, room = carry
        key_round = jax.random.fold_in(key, round_)
        points = extent * jax.random.uniform(key_round, (2, DRAWS), others.dtype, -1.0, 1.0)
        gaps = jnp.sqrt(((points - others[:, :, None]) ** 2).sum(1)) - distances[:, None]
        rooms = gaps.min(0)
        # The first that is free, or else the roomiest so far: free points score 1, 2, ... from the
        # last to the first.
        score = jnp.where(rooms >= 0, DRAWS - jnp.arange(DRAWS, dtype=others.dtype), rooms)
        best = score.max()
        chosen = jnp.where(score == best, points, -jnp.inf).max(1)
        return round_ + 1, jnp.where(best > room, chosen, point), jnp.maximum(best, room)

    _, point, _ = jax.lax.while_loop(unsettled, draw, (jnp.zeros((), jnp.int32), start, room))
    return point


def lidar(
    position: Float[Array, "2"], heading: Float[Array, ""], kinds: tuple[Float[Array, "_ 2"], ...]
) -> Float[Array, "reading"]:
    """Sixteen numbers for each kind of object, one kind after the other, as a robot at `position`
    sees them."""
    echoes = _echoes(position, heading, jnp.concatenate(kinds))
    ends = np.cumsum([len(objects) for objects in kinds])
    return jnp.concatenate([group.max(0) for group in jnp.split(echoes, ends[:-1])])


def _echoes(
    position: Float[Array, "2"], heading: Float[Array, ""], objects: Float[Array, "object 2"]
) -> Float[Array, "object 16"]:
    """The reading of each object alone."""
    offset = objects - position
    distance = jnp.sqrt((offset**2).sum(-1))
    turns = (jnp.arctan2(offset[:, 1], offset[:, 0]) - heading) / (2 * jnp.pi)
    place = (turns - jnp.floor(turns)) * BINS
    whole = jnp.floor(place)
    fraction = place - whole
    index = whole.astype(jnp.int32) % BINS  # rounding may give a whole turn: bin 0
    strength = jnp.maximum(0.0, RANGE - distance) / RANGE
    ahead = (jnp.arange(BINS) - index[:, None]) % BINS
    share = jnp.where(ahead == 0, 1.0, jnp.where(ahead == 1, fraction[:, None], 0.0))
    share = jnp.where(ahead == BINS - 1, 1 - fraction[:, None], share)
    return strength[:, None] * share
