"""`canary bench envs`: every named environment and the engines, as numbers and as lines."""

import json

import pytest
from benchmarks import environment_speed

from canary.cli import main
from canary.environments.icy_lake import IcyLake


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(environment_speed, "ENVIRONMENTS", {"Lake": IcyLake})
    monkeypatch.setattr(environment_speed, "MANY", 4)
    monkeypatch.setattr(environment_speed, "FEW", 3)


def test_it_measures_what_is_registered_and_the_engines(quick, capsys):
    assert main(["bench", "envs", "--steps", "3", "--mjx-steps", "0", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    found = {(row["what"], row["environments"]) for row in result["measurements"]}
    assert found == {("Lake", 3), ("EcoAnt native", 4), ("bare mujoco.rollout loop", 4)}
    speeds = {row["what"]: row["steps_per_second"] for row in result["measurements"]}
    assert min(speeds.values()) > 0
    assert "native_to_mjx" not in result
    assert 0.01 < result["native_to_bare"] < 100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["env"], "did you mean envs"),
        (["envs", "--steps", "0"], "at least one step"),
        (["envs", "--steps", "many"], "--steps takes a whole number"),
        (["--seeds", "0"], "at least one seed"),
    ],
)
def test_mistakes_are_explained(arguments, words, capsys):
    assert main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err
