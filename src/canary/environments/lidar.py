"""Safety-Gymnasium's pseudo-lidar: how near the nearest object of a kind is, in each of 16
directions.

An object at distance r and angle phi (counted from the robot's front) has strength s = max(0, 3 -
r) / 3 and falls into bin b = floor(phi / w), w = 2 pi / 16, at the fraction f = phi / w - b of it.
It shows as s in bin b, f s in the next bin and (1 - f) s in the one before; every bin shows its
strongest object. Nothing hides anything, and objects are points.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

BINS = 16
RANGE = 3.0  # metres


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
    """What each object alone would show."""
    offset = objects - position
    distance = jnp.sqrt((offset**2).sum(-1))
    turns = (jnp.arctan2(offset[:, 1], offset[:, 0]) - heading) / (2 * jnp.pi)
    place = (turns - jnp.floor(turns)) * BINS
    whole = jnp.floor(place)
    # Rounding may give a whole turn: bin 0
    fraction, index = (
        place - whole,
        whole.astype(jnp.int32) % BINS,
    )
    strength = jnp.maximum(0.0, RANGE - distance) / RANGE
    ahead = (jnp.arange(BINS) - index[:, None]) % BINS
    share = jnp.where(ahead == 0, 1.0, jnp.where(ahead == 1, fraction[:, None], 0.0))
    share = jnp.where(ahead == BINS - 1, 1 - fraction[:, None], share)
    return strength[:, None] * share
