"""A dead zone that follows what the cost needs: as wide as violations allow.

Any dead zone d makes the shaped Cantelli bound a guarantee (see `shaped_cost`). A wider one is less
conservative and has fewer episodes that say something about the constraint. So d starts at 0, where
every episode counts, and moves by how many of the recent episodes were violations:

    d <- clip(d + RATE * n / EPISODES * (TARGET - P / epsilon), 0, WIDEST)

after a batch of n episodes, with P the violation rate of the last EPISODES episodes, counted with
half a violation too many so that few episodes never look safe. It widens while violations are rarer
than TARGET * epsilon: the bound then forbids what the constraint allows. It narrows as soon as they
are not.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from canary.numerics.moments import EpisodeWindow, Span, recent
from canary.types import Terms

TARGET = 0.5  # of epsilon
# Beyond, one episode in fifty says something, and the bound gains nothing that the target does not
# forbid
WIDEST = 0.8
EPISODES = 500
RATE = 0.25


def followed(dead_zone: Float[Array, ""], window: EpisodeWindow, terms: Terms) -> Float[Array, ""]:
    """The dead zone after the newest batch of episodes."""
    counts = recent(window, Span(EPISODES, 0))
    rate = ((window.cost > terms.limit) & counts).sum() + 0.5
    rate = rate / (counts.sum() + 1)
    share = jnp.minimum(window.new / EPISODES, 1)
    return jnp.clip(
        dead_zone + RATE * share * jnp.maximum(TARGET - rate / terms.epsilon, -2), 0, WIDEST
    )
