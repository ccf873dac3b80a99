"""Training on environments outside JAX: what stops it, what is left behind, and how it goes on."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import canary
from canary.config.config import make_config
from canary.environments import from_gymnasium
from canary.environments.protocol import first_state
from canary.errors import CanaryError
from canary.runs import checkpoint
from canary.runs.directory import read_manifest
from canary.runs.seeds import SeedGroups
from problems.host_environments import WALK
from problems.trees import assert_same

CONSTRAINT = canary.Chance(limit=3.0, epsilon=0.2)
SETTINGS = (
    "algo.hidden=[4]", "algo.epochs=1", "training.environments=3", "training.rollout_length=10",
    "training.stagger=false", "training.chunk=1", "algo.initial_std=1",
)  # fmt: skip
UPDATE = 30  # steps


def train(environment, out, *overrides):
    return canary.train(
        environment, "ppo", CONSTRAINT, seeds=1, total_steps=6 * UPDATE, out=out,
        overrides=(*SETTINGS, *overrides), quiet=True, final_check=False,
    )  # fmt: skip


def the_run(out: Path) -> Path:
    (run,) = out.iterdir()
    return run


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("raise", r"failed in lane 0 in step 45 of its episode: RuntimeError: the motor is stuck"),
        ("nan", r"gave a (reward|cost) that is not finite.*: seed 0, update 5, step 5 of 10, lane 0"),
    ],
)  # fmt: skip
def test_a_failure_is_told_and_what_was_trained_is_kept(tmp_path, how, sentence):
    environment = from_gymnasium(WALK, horizon=60, fails_at=45, how=how, noise=0.01, drift=0.0)
    with pytest.raises(CanaryError, match=sentence) as caught:
        train(environment, tmp_path)
    assert "Walk" in str(caught.value)
    run = the_run(tmp_path)
    assert f"saved as it was after update 4: canary train --resume {run}" in str(caught.value)
    assert read_manifest(run)["status"] == "failed"
    assert max(checkpoint.stored_updates(run)) == 4
    assert canary.load(run, environment).metrics["iteration"].to_list() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fails_at", "sentence"),
    [(3, "failed in lane 0 in step 3 of its episode"), (35, "Nothing was trained yet")],
    ids=["in the check", "in the first update"],
)
def test_a_failure_before_anything_was_trained_leaves_nothing(tmp_path, fails_at, sentence):
    environment = from_gymnasium(WALK, horizon=60, fails_at=fails_at, noise=0.01, drift=0.0)
    with pytest.raises(CanaryError, match=sentence):
        train(environment, tmp_path / "runs", "training.rollout_length=40")
    assert not (tmp_path / "runs").exists()


def groups_of(environment):
    settings = (*SETTINGS, f"training.total_steps={10 * UPDATE}")
    return SeedGroups(make_config(environment, "ppo", CONSTRAINT, "fast", settings, seeds=(0, 1)))


def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(tmp_path):
    arguments = {"horizon": 25, "noise": 0.3, "drift": 0.2}
    first = groups_of(from_gymnasium(WALK, **arguments))
    first.start()
    first.advance(2)
    path = tmp_path / "checkpoint-00000002.npz"
    checkpoint.save(path, first.stacked())
    first.advance(3)
    second = groups_of(from_gymnasium(WALK, **arguments))
    states = checkpoint.load(path, second.structure())
    assert second.restore(states) == 0
    second.advance(3)
    assert_same(first.stacked(), second.stacked())
    first.restore(states)  # back again: its live environments have moved on
    first.advance(3)
    assert_same(first.stacked(), second.stacked())


def test_a_resume_reports_what_an_environment_that_forgets_its_seed_loses():
    environment = from_gymnasium("problems.host_environments:Forgetful", horizon=25)
    before, groups = groups_of(environment), groups_of(environment)
    before.start()
    before.advance(1)
    assert 0 < groups.restore(before.stacked()) <= 6
    states = groups.stacked()
    lost = np.asarray(states.lanes.steps) == 0
    assert lost.any()
    assert (np.asarray(states.lanes.spent)[lost] == 0).all()
    groups.advance(1)  # without a fault


@dataclass(frozen=True)
class Line:
    """x' = x + a / 4 without any randomness."""

    horizon: int = 7
    observation_size: ClassVar[int] = 1
    action_space: ClassVar = canary.Continuous(1)
    normalise_observation: ClassVar[bool] = True

    def reset(self, key):
        return first_state(jnp.zeros(()), jnp.zeros(1))

    def step(self, state, action, key):
        x, time = state.inner + jnp.clip(action[0], -1, 1) / 4, state.time + 1
        over = jnp.abs(x) > 0.6
        cut = (time >= self.horizon) & ~over
        return canary.EnvironmentState(
            inner=x, observation=x[None], reward=x, cost=jnp.abs(x),
            terminated=over, truncated=cut, time=time,
        )  # fmt: skip


def test_the_loop_on_the_host_trains_as_the_compiled_loop():
    """The same environment in both: the same keys, records and updates."""
    results = []
    outside = from_gymnasium(lambda: canary.to_gymnasium(Line()), horizon=7)
    for environment in (Line(), outside):
        settings = (*SETTINGS, f"training.total_steps={10 * UPDATE}", "training.stagger=true")
        config = make_config(environment, "ppo", CONSTRAINT, "fast", settings, seeds=(3,))
        groups = SeedGroups(config)
        groups.start()
        records = [groups.advance(2), groups.advance(1)]
        state = groups.stacked()
        results.append((records, state.learner.policy, state.window, state.lanes.spent))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4), *results)
