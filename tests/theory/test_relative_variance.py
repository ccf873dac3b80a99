"""The lemmas and the proposition against direct variances, hand-made laws and closed forms."""

import numpy as np
import pytest
from scipy.special import softmax

from canary.studies.paper.relative_variance import fitted_exponent
from canary.theory import cantelli, cvar, from_trajectories, indicator, scored_law
from theory.episodes import EPSILON, LIMIT, LOGITS, MDP, enumerated, gamma_law

CONSTRAINTS = {
    "indicator": indicator,
    "cvar": cvar,
    "cantelli": cantelli,
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
    law = scored_law(MDP, softmax(LOGITS, -1))
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
    """C uniform on [0, 1], slack zeta: kappa^2 tends to epsilon / (3 zeta^2 N) (app:cvar)."""
    cost = (np.arange(1_000_000) + 0.5) / 1_000_000
    constraint = cvar(from_trajectories(cost, (cost - 0.5)[:, None]), 1.5, 1e-3)
    assert constraint.noise_of_value(10) == pytest.approx(1e-3 / (3 * 0.5**2 * 10), rel=2e-2)
    assert constraint.noise_of_gradient(10) >= 0.99 / (1e-3 * 10)  # (1 - q) / (q N) at q = epsilon


def noises(name, thresholds):
    """Relative variances where the limit is the (1 - epsilon / 2) quantile."""
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
     ("d=0.3", -0.45, -0.1), ("d=0.6", -0.75, -0.4)],
)  # fmt: skip
def test_the_proposition_exponents_in_the_threshold(name, lowest, highest):
    """In an exponential tail P(C > d l) is about P(C > l)^d: it falls like epsilon^-d."""
    thresholds = np.geomspace(1e-5, 1e-2, 7)
    slope, half = fitted_exponent(thresholds, np.array(noises(name, thresholds)))
    assert lowest < slope < highest
    assert half < 0.1


def test_a_fitted_exponent_by_hand():
    """Points (0, 0), (1, 1), (2, 3): slope 3/2, standard error 1/sqrt(12)."""
    slope, half = fitted_exponent(np.exp([0.0, 1.0, 2.0]), np.exp([0.0, 1.0, 3.0]))
    assert slope == pytest.approx(1.5)
    assert half == pytest.approx(12.706205 / np.sqrt(12), rel=1e-6)
    assert np.isnan(fitted_exponent(np.array([1.0, 2.0]), np.array([1.0, 2.0]))[0])
