"""What stops training: found at its first place, and told in a sentence that names it."""

from types import SimpleNamespace

import numpy as np
import pytest

import canary
from canary.errors import CanaryError
from canary.runs.records import Fault, fault_sentence, find_fault
from canary.runs.seeds import SeedGroups
from canary.types import EpisodeEnds
from problems import faulty_environments as faulty

SHAPE = (2, 3, 5, 4)  # seeds, iterations, steps, lanes


def healthy() -> dict[str, np.ndarray]:
    numbers = {name: np.zeros(SHAPE) for name in ("reward", "cost")}
    flags = {name: np.zeros(SHAPE, bool) for name in ("ended", "valid", "terminated")}
    return numbers | flags | {"length": np.ones(SHAPE, int)}


def config() -> SimpleNamespace:
    training = SimpleNamespace(seeds=(7, 8), environments=4, rollout_length=5, batch=20)
    return SimpleNamespace(
        training=training, environment=SimpleNamespace(horizon=9), environment_name="Shop"
    )


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("cost", np.inf, "cost"),
        ("cost", 1e30, "cost"),
        ("reward", -1e30, "reward"),
        ("length", 10, "end"),
    ],
)
def test_the_first_place_counts(field: str, value: float, kind: str):
    arrays = healthy()
    assert find_fault(np.zeros(SHAPE[:2]), EpisodeEnds(**arrays), 4, 9) is None
    arrays[field][0, 2, 0, 0] = arrays[field][1, 1, 3, 2] = value
    found = find_fault(np.zeros(SHAPE[:2]), EpisodeEnds(**arrays), 4, 9)
    assert found == Fault(kind, iteration=1, step=3, lane=2, seed=1)
    said = fault_sentence(found, config(), 10)
    assert "Shop" in said
    assert "seed 8, update 12, step 4 of 5, lane 2 (environment step 235)" in said


@pytest.mark.parametrize(
    ("part", "value"),
    [("policy", np.nan), ("policy", 1e30), ("critics", np.inf), ("statistics", -np.inf)],
)
def test_a_weight_that_is_no_number_any_more_is_named(part: str, value: float):
    def seed(**numbers: float) -> SimpleNamespace:
        arrays = {
            name: {"w": np.full((1, 3), numbers.get(name, 1e14))} for name in ("policy", "critics")
        }
        # A sum of many squares
        statistics = {"w": np.full((1, 3), numbers.get("statistics", 1e30))}
        return SimpleNamespace(learner=SimpleNamespace(**arrays), statistics=statistics)

    groups = SeedGroups.__new__(SeedGroups)
    groups._groups = [(7,), (8,)]
    groups._states = [seed(), seed()]  # type: ignore[list-item]
    assert groups.unsound() is None
    groups._states = [seed(), seed(**{part: value})]  # type: ignore[list-item]
    assert groups.unsound() == (8, f"{part}['w']")


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
    assert canary.load(run, environment).metrics["iteration"].to_list() == [0, 1]
    for use in (canary.evaluate, canary.certify):
        with pytest.raises(CanaryError, match=r"^A Python callback of Calls failed: OSError"):
            use(run, environment=environment, episodes=8)
