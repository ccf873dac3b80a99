"""Wrong arguments of public functions end in one sentence, before anything is done."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import canary
from canary import CanaryError
from canary.algorithms.canary import CanaryConfig
from canary.api import Run
from canary.checking.yardstick import full_check
from canary.config.config import make_config
from canary.environments.icy_lake import IcyLake
from canary.exact import best_under_cantelli, best_under_cvar, best_under_var, from_environment

MDP = from_environment(IcyLake(horizon=2, map="SG"))
NOWHERE = Run(Path("nowhere"), None)  # type: ignore[arg-type]


def settings(**wrong: Any) -> CanaryConfig:
    """Settings that the type checks of the tests would refuse."""
    made = CanaryConfig()
    for name, value in wrong.items():
        object.__setattr__(made, name, value)
    return made


CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("train", {"env": 3}, "int is not an environment"),
    ("train", {"algorithm": 3}, "algorithm must be a name such as canary, settings"),
    ("train", {"algorithm": settings(dead_zone="x")}, "algo.dead_zone must be a number"),
    ("train", {"algorithm": settings(clipped=3)}, "algo.clipped must be a ClippedConfig"),
    ("train", {"constraint": 3}, "constraint must be"),
    ("train", {"overrides": 3}, "overrides must be a table or a text or a list of texts, not 3"),
    ("train", {"seeds": 0}, "at least one seed"),
    ("train", {"total_steps": "many"}, "total_steps must be a whole number"),
    ("train", {"out": 3}, "out must be a text or a path, not 3"),
    ("train", {"callback": 3}, "callback must be a function"),
    ("train", {"quiet": "no"}, "quiet must be true or false"),
    ("evaluate", {"run": 3}, "run must be a Run or a text or a path, not 3"),
    ("evaluate", {"run": "x", "episodes": 0}, "episodes must be at least 1"),
    ("evaluate", {"run": "x", "evaluation_seed": 2**40}, "evaluation_seed must be at most"),
    ("compare", {"runs": 1}, "runs must be a list, each item a Run"),
    ("Run.video", {"most_frames": 0}, "most_frames must be at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "arguments", "words"), CALLS)
def test_a_wrong_argument_is_a_sentence(function, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    owner = NOWHERE if function.startswith("Run.") else canary
    with pytest.raises(CanaryError) as caught:
        getattr(owner, function.removeprefix("Run."))(**arguments)
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (best_under_var, (3, 1.0, 0.1), "mdp must be a FiniteMDP"),
        (best_under_cvar, (MDP, "x", 0.1), "limit must be a number"),
        (best_under_cantelli, (MDP, 1.0, None), "epsilon must be a number"),
        (partial(full_check, episodes=0), (IcyLake(),), "episodes must be at least 1"),
        (partial(full_check, constraint=3), (IcyLake(),), "constraint must be a Chance"),
    ],
)
def test_so_it_is_below_the_face(function, arguments, words):
    with pytest.raises(CanaryError, match=words):
        function(*arguments)


@pytest.mark.parametrize(
    ("text", "steps"), [("12M", 12_000_000), ("600k", 600_000), ("1.5M", 1_500_000), ("1e6", 10**6)]
)
def test_steps_may_be_written_short(text: str, steps: int):
    assert make_config(total_steps=text).training.total_steps == steps
    assert make_config(overrides=(f"training.total_steps={text}",)).training.total_steps == steps
