"""Replaying a share of the episodes: what was invented is found, and with which probability it is
not."""

import dataclasses
import json
from itertools import combinations

import jax
import numpy as np
import pytest

from canary.certification.certify import certify, make_player
from canary.certification.plan import Plan
from canary.certification.replay import choose, escape_probability, replay
from canary.errors import CanaryError
from certification.test_certify import KEY, POLICY, subject

PLAN = Plan(episodes=150, early_stop=False, batch=50)


@pytest.fixture(scope="module")
def player():
    return make_player(subject(), PLAN)


@pytest.fixture(scope="module")
def evidence(player) -> dict:
    found, _ = certify(subject(), POLICY, None, PLAN, key=KEY, player=player)
    return json.loads(json.dumps(dataclasses.asdict(found)))


def again(evidence: dict, player, chosen: np.ndarray, seed=KEY):
    return replay(subject(), POLICY, None, evidence, PLAN, key=seed, chosen=chosen, player=player)


@pytest.mark.parametrize("share", [1.0, 0.4, 0.01])
def test_any_share_of_honest_episodes_comes_out_again(player, evidence: dict, share: float):
    chosen = choose(150, share, np.random.default_rng(1))
    result = again(evidence, player, chosen)
    assert (result.episodes, result.played, result.differing) == (150, round(150 * share + 0.4), 0)
    assert result.same_means is (True if share == 1 else None)


def test_what_was_invented_is_found_where_it_is_looked_for(player, evidence: dict):
    whole = choose(150, 1, np.random.default_rng(0))
    assert again(evidence, player, whole, jax.random.key(99)).differing > 20
    assert again(evidence | {"return_mean": 0.9}, player, whole).same_means is False
    values = [value for value, _ in evidence["costs"]]
    forged = evidence | {"costs": [[0.0, 150]], "order": "150x0"}
    honest = sum(count for value, count in evidence["costs"] if value == 0)
    assert again(forged, player, whole).differing == 150 - honest
    assert len(values) > 1


def test_the_probability_of_escape_is_that_of_a_random_choice():
    for episodes, played, forged in ((8, 3, 2), (7, 7, 1), (9, 1, 4), (6, 3, 3), (5, 2, 4)):
        choices = list(combinations(range(episodes), played))
        missed = sum(not set(range(forged)) & set(one) for one in choices)
        assert escape_probability(episodes, played, forged) == pytest.approx(missed / len(choices))
    assert escape_probability(10**6, 10**5, 100) == pytest.approx(0.9**100, rel=1e-2)


def test_the_choice_is_of_different_episodes_and_never_empty():
    chosen = choose(1000, 0.25, np.random.default_rng(3))
    assert len(set(chosen.tolist())) == 250
    assert chosen.max() < 1000
    assert len(choose(1000, 1e-9, np.random.default_rng(3))) == 1
    for share in (0, -1, 1.5, float("nan")):
        with pytest.raises(CanaryError, match="share"):
            choose(10, share, np.random.default_rng(0))
