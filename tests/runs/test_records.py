"""What stops training: found at its first place, and told in a sentence that names it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import canary
from canary.errors import CanaryError
from canary.runs.seeds import unsound
from problems import faulty_environments as faulty


@pytest.mark.parametrize(
    ("part", "value"),
    [("policy", np.nan), ("policy", 1e30), ("critics", np.inf), ("statistics", -np.inf)],
)
def test_a_weight_that_is_no_number_any_more_is_named(part: str, value: float):
    def seed(**numbers: float) -> Any:
        arrays = {
            name: {"w": np.full((1, 3), numbers.get(name, 1e14))} for name in ("policy", "critics")
        }
        # A sum of many squares
        statistics = {"w": np.full((1, 3), numbers.get("statistics", 1e30))}
        return SimpleNamespace(learner=SimpleNamespace(**arrays), statistics=statistics)

    groups: Any = [(7,), (8,)]
    assert unsound(groups, [seed(), seed()]) is None
    assert f"large: {part}['w'] of seed 8." in (
        unsound(groups, [seed(), seed(**{part: value})]) or ""
    )


def test_a_callback_that_fails_late_ends_training(tmp_path):
    environment = faulty.Calls(horizon=90, noise=0.001, fault="50")
    with pytest.raises(
        CanaryError, match="callback of Calls failed: OSError: the line is"
    ) as caught:
        canary.train(
            environment, "ppo", canary.Chance(20.0, 0.2), seeds=1, total_steps=4 * 60, out=tmp_path,
            overrides=(
                "algo.hidden=[4]", "algo.epochs=1", "training.environments=3", "training.chunk=1",
                "training.rollout_length=20", "training.stagger=false", "algo.initial_std=1",
            ),
            quiet=True,
        )  # fmt: skip
    assert "saved as it was after update 2" in str(caught.value)
    (run,) = tmp_path.iterdir()
    loaded = canary.load(run, environment)
    assert loaded.metrics["iteration"].to_list() == [0, 1]
    with pytest.raises(CanaryError, match=r"^A Python callback of Calls failed: OSError"):
        loaded.evaluate(8)
