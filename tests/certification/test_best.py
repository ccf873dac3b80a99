"""The best certified policy: the ranking, the correction, and what happens when a candidate fails.
Nothing is played."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from canary.certification import best
from canary.certification.best import RankedPolicy, find_best, ranked
from canary.certification.plan import Plan
from canary.constraints import Chance
from canary.terminal.certificate_table import print_best

RETURNS = {(0, 100): 0.9, (0, 200): 0.7, (3, 100): 0.5, (3, 200): 0.8}
BREAKS = {(3, 200)}


def candidate(seed: int, step: int, reward: float, value: float) -> RankedPolicy:
    keeps = value <= Config.constraint.allowed
    return RankedPolicy(seed, step, reward, value, keeps)


def test_the_highest_return_within_the_constraint_comes_first():
    poor, rich, wild, wilder = (
        candidate(0, 1, 0.1, 0.0), candidate(0, 2, 0.8, 0.1), candidate(1, 1, 0.9, 0.2), candidate(1, 2, 0.9, 0.4),
    )  # fmt: skip
    assert ranked([wilder, poor, wild, rich]) == [rich, poor, wild, wilder]


class Config:
    constraint = Chance(1.0, 0.1)
    environment = None
    environment_changes: tuple[str, ...] = ()

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

    def certify_run(run: Path, plan: Plan, **how: Any) -> dict[str, Any]:
        requests.append((plan, how))
        safe = (how["seeds"], how["step"]) == ((0,), 200)
        return {"verdict": "SATISFIED" if safe else "VIOLATED"}

    for name, stand_in in {
        "open_config": lambda *a, **k: Config, "stored_updates": lambda run: {1: None, 2: None},
        "load_policies": lambda config, run, step: step, "play": play, "certify_run": certify_run,
    }.items():  # fmt: skip
        monkeypatch.setattr(best, name, stand_in)
    return requests


def test_candidates_are_certified_in_turn_at_a_corrected_level(asked: list[Any], tmp_path: Path):
    found = find_best(tmp_path, tries=3, largest_step_cost=5.0, quiet=True)
    assert (found.certified, found.seed, found.step) == (True, 0, 200)
    assert [plan.confidence for plan, _ in asked] == [pytest.approx(1 - 0.05 / 3)] * 2
    assert [(how["seeds"], how["step"]) for _, how in asked] == [((0,), 100), ((0,), 200)]
    assert {how["largest_step_cost"] for _, how in asked} == {5.0}  # a limit on a mean needs it
    assert not any("evaluation_seed" in how for _, how in asked)  # fresh episodes
    assert [one.verdict for one in found.candidates] == ["VIOLATED", "SATISFIED", None, None]
    assert found.candidates[-1].step == 200  # the one that breaks the limit
    assert json.loads((tmp_path / "best.json").read_text())["sentence"] == found.sentence
    assert "corrected for 3 tries among 4" in found.sentence


def test_where_none_is_within_the_limit_nothing_is_certified(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.modules[__name__], "BREAKS", set(RETURNS))
    found = find_best(tmp_path, selection_episodes=500, quiet=True)
    assert (found.certified, asked) == (False, [])
    assert found.sentence.startswith("None of 4 stored policies is within P(cost > 1) <= 0.1")
    assert "seed 0 at step 100, has 1;" in found.sentence
    lines = Console(width=100, record=True, file=io.StringIO())
    print_best(lines, found.to_dict())
    assert "stored policies, the safest first" in lines.export_text()
