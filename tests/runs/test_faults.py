"""What stops training: a sentence names its first place."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import canary
from canary.errors import CanaryError
from canary.runs.checkpoint import stored_updates
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


@dataclass(frozen=True, kw_only=True)
class Late(faulty.Walk):
    """A cost that breaks in step 40 of an episode."""

    def _state(self, x, reward, cost, time, terminated):
        state = super()._state(x * 0, reward, cost, time, terminated)
        return eqx.tree_at(lambda s: s.cost, state, jnp.where(time >= 40, jnp.nan, state.cost))


@pytest.mark.parametrize(
    ("environment", "sentence", "updates"),
    [
        (Late(horizon=60), "cost that is not finite.*: seed 0, update 4, step 10 of 10, lane 0", 3),
        (
            faulty.Calls(horizon=90, noise=0.001, fault="50"),
            "callback of Calls failed: OSError: the line is",
            4,
        ),
    ],
)
def test_a_fault_ends_training_as_it_was_before(
    environment, sentence, updates, tmp_path, monkeypatch
):
    monkeypatch.setattr("canary.checking.record.LONG", 32)  # the check before training ends earlier
    with pytest.raises(CanaryError, match=sentence) as caught:
        canary.train(
            environment, "ppo", canary.Chance(20.0, 0.2), seeds=1, total_steps=300, out=tmp_path,
            overrides=(
                "algo.hidden=[4]", "algo.epochs=1", "training.environments=3", "training.chunk=1",
                "training.rollout_length=10", "training.stagger=false", "algo.initial_std=1",
            ),
            quiet=True,
        )  # fmt: skip
    assert f"saved as it was after update {updates}" in str(caught.value)
    (run,) = tmp_path.iterdir()
    assert max(stored_updates(run)) == updates
    loaded = canary.load(run, environment)
    assert loaded.metrics["iteration"].to_list() == list(range(updates))
    with pytest.raises(CanaryError, match=r"a cost that is not|callback of Calls failed"):
        loaded.evaluate(8)
