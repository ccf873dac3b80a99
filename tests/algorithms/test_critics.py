"""Each critic learns alone: nobody's targets can slow or spoil another."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from canary.algorithms.critics import (
    CriticConfig,
    fit_critics,
    init_critics,
    learning_rates,
    make_optimiser,
)
from canary.algorithms.inputs import Inputs, merge_duplicates
from canary.networks import critic_values, make_critics
from problems.terms import make_terms
from problems.trees import assert_close

UPDATES = 30
CONFIG = CriticConfig(learning_rate=0.01, epochs=20)
ROWS = jnp.asarray(np.random.default_rng(0).integers(-2, 3, (64, 2)) / 2, jnp.float32)
VALUE = ROWS[:, 0] * ROWS[:, 1] + 0.5 * ROWS[:, 0] - 0.3
OPTIMISER = make_optimiser(CONFIG.gradient_clip)


def start(count=2):
    return init_critics(make_critics(jax.random.key(1), count, 2, (16, 16)), OPTIMISER)


def at(iteration):
    return make_terms(1.0, 0.1, updates=UPDATES, iteration=iteration)


@jax.jit
def fit(critics, targets, iteration=0):
    return fit_critics(
        critics, OPTIMISER, CONFIG, Inputs(ROWS), targets, at(iteration), jax.random.key(0)
    )


def train(targets, updates=UPDATES):
    critics = start()
    for iteration in range(updates):
        critics, losses = fit(critics, targets, iteration)
    return critics, losses


def error(critics, index):
    return float(jnp.abs(critic_values(critics.networks, ROWS)[index] - VALUE).max())


@pytest.fixture(scope="module")
def trained():
    return train(jnp.stack([VALUE, VALUE]))


def test_critics_converge_to_a_known_function(trained):
    critics, losses = trained
    assert error(start(), 0) > 0.3
    assert error(critics, 0) < 0.05
    assert error(critics, 1) < 0.05
    assert losses.shape == (2,)
    assert (losses < 1e-3).all()


def test_under_a_joint_clip_huge_targets_starve_the_other_critic():
    def moved(scale, joint_clip):
        targets = jnp.stack([VALUE, scale * VALUE])
        critics, _ = fit_critics(
            start(), OPTIMISER, replace(CONFIG, epochs=1), Inputs(ROWS), targets, at(0),
            jax.random.key(0), joint_clip=joint_clip,
        )  # fmt: skip
        return float(jnp.abs(critics.networks.weights[0][0] - start().networks.weights[0][0]).max())

    assert moved(1e9, joint_clip=False) == moved(1.0, joint_clip=False)
    assert moved(1e9, joint_clip=True) < 0.2 * moved(1.0, joint_clip=True)


@pytest.mark.parametrize("bad", [np.nan, 1e30])
def test_a_critic_without_a_finite_loss_stays_as_it_is(bad):
    """One bad sample is enough; 1e30 is finite but its square is not."""
    before = start()
    after, losses = fit(before, jnp.stack([VALUE.at[3].set(bad), VALUE]))
    assert not np.isfinite(losses[0])
    assert np.isfinite(losses[1])
    untouched = jax.tree.map(lambda a, b: bool((a[0] == b[0]).all()), after, before)
    assert all(jax.tree.leaves(untouched))
    changed = jax.tree.map(lambda a, b: bool((a[1] != b[1]).any()), after.networks, before.networks)
    assert all(jax.tree.leaves(changed))
    assert error(after, 1) < error(before, 1)


def test_learning_rate_falls_linearly_over_all_gradient_steps_of_the_run():
    rates = np.concatenate([learning_rates(CONFIG, at(iteration)) for iteration in range(UPDATES)])
    expected = CONFIG.learning_rate * (
        1 - np.arange(UPDATES * CONFIG.steps) / (UPDATES * CONFIG.steps)
    )
    np.testing.assert_allclose(rates, expected, rtol=1e-4)


def test_merged_inputs_give_the_fit_and_the_loss_of_the_whole_batch():
    """Samples of one row pull by their mean target; their spread stays in the loss."""
    rows = jnp.concatenate([ROWS[:20], ROWS[:10], ROWS[:10]])
    targets = jax.random.normal(jax.random.key(3), (2, rows.shape[0]))
    merged, _, exact = merge_duplicates(rows, 32)
    assert exact

    def fitted(inputs):
        fit = jax.jit(
            lambda x: fit_critics(start(), OPTIMISER, CONFIG, x, targets, at(0), jax.random.key(0))
        )
        return fit(inputs)

    (plain, plain_loss), (condensed, condensed_loss) = fitted(Inputs(rows)), fitted(merged)
    np.testing.assert_allclose(condensed_loss, plain_loss, rtol=1e-4)
    assert_close(plain.networks, condensed.networks, atol=2e-4)
