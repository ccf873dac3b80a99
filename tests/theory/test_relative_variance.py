"""The lemmas and the proposition against direct variances, hand-made laws, closed forms and
simulation."""

from itertools import product

import numpy as np
import pytest

from canary.exact.distribution import bounded_variable
from canary.studies.paper.relative_variance import fitted_exponent
from canary.theory import (
    cantelli,
    cvar,
    from_trajectories,
    indicator,
    mean,
    plug_in_gradient,
    plug_in_value,
    scored_law,
)
from theory.episodes import (
    EPSILON,
    LIMIT,
    LOGITS,
    MDP,
    enumerated,
    gamma_law,
    softmax,
)

CONSTRAINTS = {
    "indicator": indicator,
    "cvar": cvar,
    "cantelli": cantelli,
    "mean": mean,
    "shaped": lambda law, limit, epsilon: cantelli(law, limit, epsilon, 0.4),
}
EPISODES = enumerated()
GAMMA = gamma_law()


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_the_lemmas_equal_the_variance_of_a_mean_over_all_episodes(name):
    constraint = CONSTRAINTS[name](EPISODES, LIMIT, EPSILON)
    chance, x = EPISODES.probabilities, constraint.statistic
    score = EPISODES.score / chance[:, None]
    value = chance @ x + constraint.offset
    direct = chance @ (x - chance @ x) ** 2 / (7 * value**2)
    assert constraint.noise_of_value(7) == pytest.approx(direct)
    terms = score * x[:, None]
    mean = chance @ terms
    direct = chance @ ((terms - mean) ** 2).sum(1) / (7 * mean @ mean)
    assert constraint.noise_of_gradient(7) == pytest.approx(direct)
    assert not x[~constraint.active].any()


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_the_lemmas_hold_and_atoms_may_be_merged(name):
    """With q, R and r of the appendix, and N = 50 (lem:value, lem:grad)."""
    law = scored_law(MDP, softmax(LOGITS))
    constraint = CONSTRAINTS[name](law, LIMIT, EPSILON)
    again = CONSTRAINTS[name](EPISODES, LIMIT, EPSILON)
    x, q = constraint.statistic, constraint.active_probability
    sampled, gradient = law.expectation(x), law.gradient(x)
    ratio = q * law.expectation(x**2) / sampled**2
    share = abs(sampled) / abs(constraint.value)
    found = constraint.noise_of_value(50)
    assert found == pytest.approx(share**2 * (ratio / (q * 50) - 1 / 50))
    assert found == pytest.approx(again.noise_of_value(50))
    ratio = q * float(x**2 @ law.square) / (gradient @ gradient)
    found = constraint.noise_of_gradient(50)
    assert found == pytest.approx(ratio / (q * 50) - 1 / 50)
    assert found == pytest.approx(again.noise_of_gradient(50))
    assert (1 - q) / (q * 50) <= found * (1 + 1e-12)


def test_the_indicator_has_the_closed_form_of_the_appendix():
    law = from_trajectories(np.array([0.0, 9.0]), np.zeros((2, 1)), np.array([0.985, 0.015]))
    share = 0.015 / 0.02
    assert indicator(law, 5.5, 0.02).noise_of_value(100) == pytest.approx(
        (share / (1 - share)) ** 2 * 0.985 / (0.015 * 100)
    )


def test_a_bounded_cost_lets_the_cvar_value_escape_but_not_its_gradient():
    """C uniform on [0, 1], slack zeta: kappa^2 of the value tends to epsilon / (3 zeta^2 N)
    (app:cvar)."""
    cost = (np.arange(1_000_000) + 0.5) / 1_000_000
    constraint = cvar(from_trajectories(cost, (cost - 0.5)[:, None]), 1.5, 1e-3)
    assert constraint.noise_of_value(10) == pytest.approx(1e-3 / (3 * 0.5**2 * 10), rel=2e-2)
    assert constraint.noise_of_gradient(10) >= 0.99 / (1e-3 * 10)  # (1 - q) / (q N) at q = epsilon


def test_the_mean_has_the_closed_form_of_the_appendix():
    """C is 0, 2 or 6 with 0.7, 0.2, 0.1, limit 5: mu = 1 on f = 0.3, r = 1/4, R = 4.4/0.3 / (1/0.3)^2
    (app:scaling, mean constraint)."""
    law = from_trajectories(np.array([0.0, 2, 6]), np.zeros((3, 1)), np.array([0.7, 0.2, 0.1]))
    constraint = mean(law, 5.0)
    assert (constraint.value, constraint.active_probability) == pytest.approx((-4, 0.3))
    assert constraint.noise_of_value(10) == pytest.approx(0.25**2 * (4.4 - 1) / 10)


def noises(name, thresholds):
    """Relative variances where the policy uses half of its threshold: the limit is the (1 - epsilon
    / 2) quantile."""
    constraints = CONSTRAINTS | {
        f"d={d}": (lambda law, limit, epsilon, d=d: cantelli(law, limit, epsilon, d))
        for d in (0.3, 0.6)
    }
    limits = [GAMMA.value_at_risk(epsilon / 2) for epsilon in thresholds]
    return [
        constraints[name](GAMMA, limit, epsilon).noise_of_gradient(100)
        for limit, epsilon in zip(limits, thresholds, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [("indicator", -1.05, -0.95), ("cvar", -1.05, -0.9), ("cantelli", -0.1, 0.1),
     ("mean", -0.01, 0.01), ("d=0.3", -0.45, -0.1), ("d=0.6", -0.75, -0.4)],
)  # fmt: skip
def test_the_proposition_exponents_in_the_threshold(name, lowest, highest):
    """An exponential tail has P(C > d l) about P(C > l)^d, so the shaped bound falls like
    epsilon^-d: in between."""
    thresholds = np.geomspace(1e-5, 1e-2, 7)
    slope, half = fitted_exponent(thresholds, np.array(noises(name, thresholds)))
    assert lowest < slope < highest
    assert half < 0.1


def test_a_fitted_exponent_by_hand():
    """log kappa^2 = (0, 1, 3) at log epsilon = (0, 1, 2): slope 3/2, residual variance 1/6,
    standard error 1/sqrt(12)."""
    slope, half = fitted_exponent(np.exp([0.0, 1.0, 2.0]), np.exp([0.0, 1.0, 3.0]))
    assert slope == pytest.approx(1.5)
    assert half == pytest.approx(12.706205 / np.sqrt(12), rel=1e-6)
    assert np.isnan(fitted_exponent(np.array([1.0, 2.0]), np.array([1.0, 2.0]))[0])


THREE = from_trajectories(
    np.array([0.0, 2.0, 5.0]),
    np.array([[0.4, -1.0], [-0.7, 0.5], [0.9, 0.3]]),
    np.array([0.5, 0.3, 0.2]),
)


def batches(count: int):
    """Every batch of `count` episodes of THREE with its probability."""
    for picks in product(range(3), repeat=count):
        yield THREE.probabilities[list(picks)].prod(), list(picks)


@pytest.mark.parametrize("dead_zone", [None, 0.2])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_bias_and_variance_of_the_plug_in_value_over_every_batch(dead_zone, count):
    x, bound = bounded_variable(THREE.support, 4.0, dead_zone)
    chances, values = [], []
    for chance, picks in batches(count):
        sample = x[picks]
        chances.append(chance)
        values.append(9 * sample.var() - (bound - sample.mean()) ** 2)  # epsilon 0.1: beta = 9
    mean = np.dot(chances, values)
    exact = plug_in_value(THREE, 4.0, 0.1, count, dead_zone)
    assert exact.truth + exact.bias == pytest.approx(mean)
    assert exact.variance == pytest.approx(np.dot(chances, (np.array(values) - mean) ** 2))


@pytest.mark.parametrize("dead_zone", [None, 0.2])
def test_bias_of_the_plug_in_gradient_over_every_batch_and_its_leading_variance(dead_zone):
    x, bound = bounded_variable(THREE.support, 4.0, dead_zone)
    score = THREE.score / THREE.probabilities[:, None]

    def estimate(picks):
        first, second = ((score[picks] * x[picks, None] ** power).mean(0) for power in (1, 2))
        return 2 * (bound - x[picks].mean() / 0.1) * first + 9 * second

    mean = sum(chance * estimate(picks) for chance, picks in batches(4))
    exact = plug_in_gradient(THREE, 4.0, 0.1, 4, dead_zone)
    assert exact.truth + exact.bias == pytest.approx(mean)
    draws = np.random.default_rng(0).choice(3, (4000, 400), p=THREE.probabilities)
    found = np.array([estimate(picks) for picks in draws]).var(0).sum()
    assert plug_in_gradient(THREE, 4.0, 0.1, 400, dead_zone).variance == pytest.approx(
        found, rel=0.08
    )
