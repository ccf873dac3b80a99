"""Layouts: distances that must hold, and the distribution of upstream's rejection sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.environments.point_arena import (
    ARENA,
    GOAL,
    KEEP_OUT,
    Layout,
    move_goal,
    sample_layout,
)

COUNT = 3000


@pytest.fixture(scope="module")
def layouts():
    keys = jax.random.split(jax.random.key(0), COUNT)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(sample_layout))(keys))


def stacked(layouts):
    robot, goal, vase = (at[:, None] for at in (layouts.robot, layouts.goal, layouts.vase))
    return np.concatenate([robot, goal, layouts.hazards, vase], axis=1)


def upstream_layout(rng):
    """Safety-Gymnasium's sampler, one draw at a time; robot, goal, hazards, vase."""

    def draw(index, placed):
        while True:
            point = rng.uniform(KEEP_OUT[index] - ARENA, ARENA - KEEP_OUT[index], 2)
            gaps = [
                np.hypot(*(point - at)) - KEEP_OUT[other] - KEEP_OUT[index]
                for other, at in placed.items()
            ]
            if min(gaps, default=0.0) >= 0:
                return point

    placed = {}
    for index in range(len(KEEP_OUT)):
        placed[index] = draw(index, placed)
    del placed[GOAL]
    placed[GOAL] = draw(GOAL, placed)
    return np.array([placed[index] for index in range(len(KEEP_OUT))])


def test_objects_keep_their_distance(layouts):
    """Never nearer than both keep-out radii, and in some layout almost as near."""
    points = stacked(layouts)
    gaps = np.sqrt(((points[:, :, None] - points[:, None]) ** 2).sum(-1))
    gaps -= KEEP_OUT[:, None] + KEEP_OUT
    nearest = gaps.min(0)[~np.eye(len(KEEP_OUT), dtype=bool)]
    assert nearest.min() >= -1e-6
    assert nearest.max() < 0.1


def test_objects_fill_the_arena_up_to_their_own_margin(layouts):
    for index, largest in zip((0, 1, 2, 10), (1.1, 1.195, 1.32, 1.35), strict=True):
        at = np.abs(stacked(layouts)[:, index])
        assert largest - 0.02 < at.max() <= largest + 1e-6


def test_the_distribution_is_that_of_upstreams_sampler(layouts):
    """Mean radius and mean distances to the others, of every object, within five standard
    errors."""
    rng = np.random.default_rng(0)
    theirs = np.array([upstream_layout(rng) for _ in range(1500)])

    def features(points):
        gaps = np.sqrt(((points[:, :, None] - points[:, None]) ** 2).sum(-1))
        nearest = np.where(np.eye(len(KEEP_OUT), dtype=bool), np.inf, gaps).min(-1)
        return np.concatenate(
            [np.linalg.norm(points, axis=-1), points[..., 0], gaps.mean(-1), nearest], axis=1
        )

    a, b = features(stacked(layouts)), features(theirs)
    error = np.sqrt(a.var(0) / len(a) + b.var(0) / len(b))
    assert (np.abs(a.mean(0) - b.mean(0)) < 5 * error).all()
    assert 1.4 < np.linalg.norm(layouts.goal - layouts.robot, axis=1).mean() < 1.5


def test_a_goal_moves_only_when_it_was_reached(layouts):
    few = jax.tree.map(lambda leaf: jnp.asarray(leaf[:40]), layouts)
    reached = jnp.arange(40) % 3 == 0
    keys = jax.random.split(jax.random.key(2), 40)
    goals = np.asarray(jax.jit(jax.vmap(move_goal))(few, reached, keys))
    unchanged = (goals == np.asarray(few.goal)).all(1)
    np.testing.assert_array_equal(unchanged, ~reached)
    moved = Layout(few.robot, jnp.asarray(goals), few.hazards, few.vase)
    assert np.linalg.norm(moved.goal - moved.robot, axis=1).min() > 0.705 - 1e-6
    assert np.linalg.norm(moved.goal[:, None] - moved.hazards, axis=2).min() > 0.485 - 1e-6
    for index in np.flatnonzero(reached)[:3]:  # alone as among many
        one = jax.tree.map(lambda leaf, i=index: leaf[i], few)
        np.testing.assert_array_equal(move_goal(one, jnp.array(True), keys[index]), goals[index])
