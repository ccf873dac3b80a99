"""Backtracking takes the first acceptable point and nothing else; acceptance follows the table."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms.trust_region_step import Levels, TrustRegionConfig, acceptable, search
from canary.constraints import Tier

START = jnp.array([1.0, -2.0, 1 / 3])
STEP = jnp.array([0.5, 0.25, -1.0])


@partial(jax.jit, static_argnames="longest")
def walk(longest: float):
    """Search for a step no longer than `longest` times the full one: so far does the radius reach."""
    before = Levels(jnp.zeros(()), jnp.full(1, -1.0), jnp.zeros(()))

    def levels(point):
        return Levels(jnp.ones(()), jnp.full(1, -1.0), (point - START)[0] / STEP[0])

    config = TrustRegionConfig(target_kl=longest)
    return search(levels, START, before, STEP, jnp.array(Tier.NOMINAL), config)


@pytest.mark.parametrize("index", [0, 3, 9])
def test_the_first_acceptable_point_is_taken_including_the_last_attempt(index):
    found = walk(0.8**index * 1.001)
    assert found.accepted
    assert found.attempts == index + 1
    np.testing.assert_allclose(found.theta, START + 0.8**index * STEP, atol=1e-6)
    assert found.levels.kl == pytest.approx(0.8**index, rel=1e-5)


def test_without_an_acceptable_point_the_start_comes_back_bit_for_bit():
    found = walk(1e-9)
    assert not found.accepted
    assert found.attempts == 10
    np.testing.assert_array_equal(
        np.asarray(found.theta).view(np.int32), np.asarray(START).view(np.int32)
    )


RADIUS = 0.01
judge = jax.jit(acceptable)


def decide(tier, values, *, reward=0.0, changes=(0.0, 0.0), kl=RADIUS) -> bool:
    """Whether a point is kept that changes the surrogates so; they start at `values`."""
    before = Levels(jnp.zeros(()), jnp.asarray(values), jnp.zeros(()))
    after = Levels(jnp.asarray(reward), jnp.asarray(values) + jnp.asarray(changes), jnp.asarray(kl))
    return bool(judge(after, before, jnp.asarray(int(tier)), RADIUS))


@pytest.mark.parametrize(
    ("tier", "values", "point", "accepted"),
    [
        # Started feasible: the reward may not fall and no constraint may be broken.
        (Tier.NOMINAL, (-1.0, -0.5), {"reward": 0.1, "changes": (0.9, 0.4)}, True),
        (Tier.NOMINAL, (-1.0, -0.5), {"reward": -0.1, "changes": (-1.0, -1.0)}, False),
        (Tier.NOMINAL, (-1.0, -0.5), {"reward": 0.1, "changes": (1.1, 0.0)}, False),
        (Tier.NOMINAL, (-1.0, -0.5), {"reward": 0.1, "changes": (0.0, 0.6)}, False),
        # Started violated, reachable: the reward may fall, constraints may use their slack.
        (Tier.NOMINAL, (0.2, -0.5), {"reward": -9.0, "changes": (-0.1, 0.4)}, True),
        (Tier.NOMINAL, (0.2, -0.5), {"reward": 9.0, "changes": (0.1, 0.0)}, False),
        (Tier.NOMINAL, (0.2, -0.5), {"reward": 9.0, "changes": (-0.1, 0.6)}, False),
        # Restoring the bound: the bound may not rise, the mean may use its slack.
        (Tier.BOUND_RESTORATION, (2.0, -0.5), {"reward": -9.0, "changes": (-0.1, 0.4)}, True),
        (Tier.BOUND_RESTORATION, (2.0, -0.5), {"reward": 9.0, "changes": (0.1, -1.0)}, False),
        (Tier.BOUND_RESTORATION, (2.0, -0.5), {"reward": 9.0, "changes": (-1.0, 0.6)}, False),
        # Restoring the mean: nothing else counts.
        (Tier.MEAN_RESTORATION, (-2.0, 3.0), {"reward": -9.0, "changes": (50.0, -0.1)}, True),
        (Tier.MEAN_RESTORATION, (-2.0, 3.0), {"reward": 9.0, "changes": (-50.0, 0.1)}, False),
        (Tier.NO_STEP, (-1.0, -1.0), {"reward": 1.0, "changes": (-1.0, -1.0)}, False),
        # One constraint (CPO): the only one is the bound.
        (Tier.NOMINAL, (-1.0,), {"reward": 0.1, "changes": (0.5,)}, True),
        (Tier.NOMINAL, (-1.0,), {"reward": 0.1, "changes": (1.5,)}, False),
        (Tier.BOUND_RESTORATION, (1.0,), {"reward": -5.0, "changes": (-0.1,)}, True),
        (Tier.BOUND_RESTORATION, (1.0,), {"reward": 5.0, "changes": (0.1,)}, False),
    ],
)
def test_each_row_of_the_table(tier, values, point, accepted):
    assert decide(tier, values, **point) == accepted


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize(
    "spoiled",
    [
        {"kl": RADIUS * 1.01},
        {"kl": np.nan},
        {"reward": np.nan},
        {"reward": np.inf},
        {"changes": (-np.inf, -1.0)},
    ],
)
def test_no_tier_accepts_a_broken_or_distant_point(tier, spoiled):
    good = {"reward": 1.0, "changes": (-1.0, -1.0), "kl": RADIUS}
    values = {Tier.NOMINAL: (-1.0, -1.0), Tier.BOUND_RESTORATION: (1.0, -1.0)}.get(tier, (1.0, 1.0))
    assert decide(tier, values, **good) == (tier != Tier.NO_STEP)
    assert not decide(tier, values, **(good | spoiled))
