"""The best certified policy: the ranking, the correction, and what is said where none is found."""

import json
from pathlib import Path

import pytest

from canary.certification.best import find_best, order
from canary.certification.verify import verify_file
from canary.constraints import Chance
from canary.terminal.certificate_table import print_best
from canary.terminal.console import PlainConsole
from runs.untrained_runs import untrained_run


def test_the_highest_return_within_the_constraint_comes_first():
    rows = [(0.9, 0.4, False), (0.1, 0.0, True), (0.9, 0.2, False), (0.8, 0.1, True)]
    names = "return_mean", "constraint_value", "keeps"
    wilder, poor, wild, rich = each = [dict(zip(names, row, strict=True)) for row in rows]
    assert sorted(each, key=order) == [rich, poor, wild, wilder]


def test_the_best_policy_is_certified_at_a_corrected_level(tmp_path: Path):
    run = untrained_run(tmp_path, constraint=Chance(12.5, 0.2))  # no episode costs more than 12
    found = find_best(run, selection_episodes=20, quiet=True)
    first, second = found["candidates"]
    assert first["return_mean"] >= second["return_mean"]
    assert [found[name] for name in ("certified", "seed")] == [True, first["seed"]]
    assert (first["verdict"], second["verdict"]) == ("SATISFIED", None)
    assert found["certificate"]["plan"]["confidence"] == pytest.approx(1 - 0.05 / 2)
    assert [one["seed"] for one in found["certificate"]["results"]] == [found["seed"]]
    assert "corrected for 2 tries among 2" in found["sentence"]
    assert json.loads((run / "best.json").read_text()) == found
    assert verify_file(run, run=run)["valid"]
    few = find_best(run, selection_episodes=20, episodes=5, quiet=True)
    assert (few["certified"], few["certificate"]) == (False, None)
    assert "None of the first 2 was certified" in few["sentence"]
    assert [one["verdict"] for one in few["candidates"]] == ["UNDECIDED"] * 2


def test_where_none_is_within_the_limit_nothing_is_certified(tmp_path: Path, capsys):
    run = untrained_run(tmp_path, constraint=Chance(0.5, 0.001))
    found = find_best(run, selection_episodes=200, quiet=True)
    assert not found["certified"]
    said = "None of 2 stored policies is within P(cost > 0.5) <= 0.001"
    assert found["sentence"].startswith(said)
    assert f"seed {found['candidates'][0]['seed']} at step" in found["sentence"]
    assert not (run / "certificate.json").exists()
    print_best(PlainConsole(width=100), found)
    assert "stored policies" in capsys.readouterr().out
