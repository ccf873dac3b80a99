"""The richest certified policy: the ranking, the correction, and what happens when a candidate
fails. Nothing is played."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from canary.certification import best
from canary.certification.best import Best, Candidate, Search, find_best, ranked
from canary.constraints import Chance
from canary.errors import CanaryError

RETURNS = {(0, 100): 0.9, (0, 200): 0.7, (3, 100): 0.5, (3, 200): 0.8}
BREAKS = {(3, 200)}


def candidate(seed: int, step: int, reward: float, value: float) -> Candidate:
    return Candidate(seed=seed, step=step, return_mean=reward, constraint_value=value)


def test_the_richest_that_keeps_the_constraint_comes_first():
    poor, rich, wild, wilder = (
        candidate(0, 1, 0.1, 0.0), candidate(0, 2, 0.8, 0.1), candidate(1, 1, 0.9, 0.2), candidate(1, 2, 0.9, 0.4),
    )  # fmt: skip
    assert ranked([wilder, poor, wild, rich], Chance(1.0, 0.1)) == [rich, poor, wild, wilder]


class Config:
    constraint = Chance(1.0, 0.1)
    environment = None

    class training:
        seeds, batch = (0, 3), 100


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was asked to be certified; only (0, 200) is safe."""
    requests: list[Any] = []

    def play(step: int, plan: Any, report: Any):
        rows = [
            (seed, RETURNS[seed, step], 9.0 if (seed, step) in BREAKS else 0.0)
            for seed in plan.seeds
            for _ in range(2)
        ]
        return pl.DataFrame(rows, schema=["seed", "return", "cost"], orient="row"), 0.0

    def certify_run(run: Path, request: Any, **how: Any) -> dict[str, Any]:
        requests.append(request)
        safe = (request.seeds[0], request.step) == (0, 200)
        return {"verdict": "SATISFIED" if safe else "VIOLATED"}

    for name, stand_in in {
        "open_config": lambda *a, **k: Config, "stored_updates": lambda run: {1: None, 2: None},
        "load_policies": lambda config, run, step: step, "play": play, "certify_run": certify_run,
    }.items():  # fmt: skip
        monkeypatch.setattr(best, name, stand_in)
    return requests


def test_candidates_are_certified_in_turn_at_a_corrected_level(asked: list[Any], tmp_path: Path):
    found = find_best(tmp_path, Search(tries=3, largest_step_cost=5.0), quiet=True)
    assert (found.certified, found.seed, found.step) == (True, 0, 200)
    assert {request.largest_step_cost for request in asked} == {5.0}  # a limit on a mean needs it
    assert [(request.seeds, request.step) for request in asked] == [((0,), 100), ((0,), 200)]
    assert [request.confidence for request in asked] == [pytest.approx(1 - 0.05 / 3)] * 2
    # Fresh episodes, nobody's choice
    assert all(request.evaluation_seed is None for request in asked)
    assert [one.verdict for one in found.candidates] == ["VIOLATED", "SATISFIED", None, None]
    assert found.candidates[-1].step == 200  # the one that breaks the limit
    assert json.loads((tmp_path / "best.json").read_text())["sentence"] == found.sentence
    assert "3 of 4 candidates could be tried" in found.sentence


def test_without_a_certified_candidate_there_is_none(asked: list[Any], tmp_path: Path):
    found = find_best(tmp_path, Search(tries=1), quiet=True)
    assert (found.certified, found.seed, found.certificate) == (False, None, None)
    assert "None of the 1 richest of 4 candidates was certified (violated)" in found.sentence
    assert "or allow more --tries" in found.sentence
    assert asked[0].confidence == pytest.approx(0.95)


def test_more_tries_are_not_advised_where_all_candidates_were_tried():
    tried = replace(candidate(0, 100, 1.0, 0.3), verdict="UNDECIDED")
    one = Best(
        seed=None, step=None, sentence="", search=Search(tries=1), candidates=(tried,),
        certificate=None,
    )  # fmt: skip
    assert "--tries" not in best._sentence(one, 1)


@pytest.mark.parametrize("wrong", [{"tries": 0}, {"selection_episodes": 1.5}, {"confidence": 1.0}])
def test_a_search_that_cannot_be_is_refused(wrong: dict[str, Any]):
    with pytest.raises(CanaryError):
        Search(**wrong)
