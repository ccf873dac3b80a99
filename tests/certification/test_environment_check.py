"""Is it the environment of training? Whole episodes show a change, or it could not be compared."""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import pytest
from rich.console import Console

import canary
from canary.certification.page import render_page
from canary.certification.verify import verify_file
from canary.environments import from_gymnasium
from canary.errors import CanaryError
from canary.runs.directory import update_manifest
from canary.runs.environment import source_file_digest
from canary.terminal.certificate_table import print_certificate
from problems.faulty_environments import Walk
from problems.host_environments import WALK, Forgetful

SETTINGS = {
    "algo.hidden": [4], "algo.epochs": 1, "training.environments": 3, "training.rollout_length": 10,
    "training.chunk": 1, "training.keep_checkpoints": 2,
}  # fmt: skip
CHANCE = canary.Chance(limit=1000.0, epsilon=0.2)


@dataclass(frozen=True, kw_only=True)
class LateCost(Walk):
    """Its cost begins at step 40, unless a file switches it off."""

    horizon: int = 60
    switch: str = ""

    def step(self, state, action, key):
        moved = super().step(state, 0 * action, key)
        costs = moved.time >= 40 if not Path(self.switch).exists() else jnp.zeros((), bool)
        quiet = eqx.tree_at(lambda one: one.terminated, moved, jnp.zeros((), bool))
        quiet = eqx.tree_at(lambda one: one.truncated, quiet, moved.time >= self.horizon)
        return eqx.tree_at(lambda one: one.cost, quiet, costs.astype(jnp.float32))


def trained(environment, folder: Path) -> canary.Run:
    how = {"total_steps": 60, "overrides": SETTINGS, "quiet": True, "final_check": False}
    return canary.train(environment, "ppo", CHANCE, seeds=1, out=folder, **how)


def test_a_cost_that_is_switched_off_late_is_found(tmp_path: Path):
    switch = tmp_path / "off"
    environment = LateCost(switch=str(switch))
    run = trained(environment, tmp_path)

    def certified(accept_change: bool = False, **options) -> dict:
        own = canary.load(run.directory, environment, accept_change=accept_change)
        return canary.certify(own, episodes=20, **options)

    certificate = certified()
    check = certificate["environment_check"]
    assert check["compared"]
    assert check["file_sha256"] == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    assert check["file_sha256"] in render_page(certificate)
    switch.touch()
    for step in (None, 30):
        with pytest.raises(CanaryError, match="the cost is 0 and was 21"):
            certified(step=step)
    changed = certified(accept_change=True)
    assert "not the environment of training" in changed["sentence"]
    assert "the cost is 0 and was 21" in render_page(changed)

    update_manifest(run.directory, reference_episodes=None)  # as if training had not ended
    check = certified()["environment_check"]
    assert (check["compared"], "could not be compared" in check["sentence"]) == (False, True)


def test_randomness_of_its_own_cannot_be_compared(tmp_path: Path):
    environment = from_gymnasium(Forgetful, horizon=9)
    run = trained(environment, tmp_path)
    certificate = canary.certify(canary.load(run.directory, environment), episodes=20)
    said = "could not be compared with that of training: it has randomness of its own"
    assert certificate["environment_check"]["compared"] is False
    assert said in certificate["environment_check"]["sentence"]
    assert said in render_page(certificate)
    console = Console(record=True, width=200, file=io.StringIO())
    print_certificate(console, certificate)
    assert said in console.export_text()
    (problem,) = verify_file(run.directory, environment=environment, replay=True)["problems"]
    assert "could not be compared" in problem


def test_the_file_that_defines_an_environment_is_known():
    assert source_file_digest(LateCost()) is not None
    assert source_file_digest(from_gymnasium(WALK, horizon=9)) is not None
    assert source_file_digest(from_gymnasium(lambda: Forgetful(), horizon=9)) is None
