"""Episodes recorded after training show an environment that changed, or say that nothing can be
compared."""

import io
import json
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
from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.runs.reference_episodes import source_file
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
    return canary.train(
        environment,
        "ppo",
        CHANCE,
        seeds=1,
        total_steps=60,
        out=folder,
        overrides=SETTINGS,
        quiet=True,
    )


def test_a_cost_that_is_switched_off_late_is_found(tmp_path: Path):
    switch = tmp_path / "off"
    environment = LateCost(switch=str(switch))
    run = trained(environment, tmp_path)
    recorded = json.loads((run.directory / "reference.json").read_text())
    assert sorted(recorded["states"]) == ["1", "2"]  # the kept state and the last
    assert recorded["source"]["file"] == Path(__file__).name
    certificate = canary.certify(run.directory, environment=environment, episodes=20)
    assert certificate["environment_check"]["compared"]
    assert certificate["environment_check"]["source"] == recorded["source"]
    switch.touch()
    for step in (None, 30):
        with pytest.raises(CanaryError, match=r"episode 1 of seed 0 has cost 0 here and had 21"):
            canary.certify(run.directory, environment=environment, episodes=20, step=step)
    changed = canary.certify(
        run.directory, environment=environment, episodes=20, accept_change=True
    )
    assert "has cost 0 here and had 21" in changed["sentence"]
    assert "had 21" in render_page(changed)


def test_a_changed_file_with_the_same_episodes_is_noted(tmp_path: Path):
    environment = LateCost()
    run = trained(environment, tmp_path)
    path = run.directory / "reference.json"
    path.write_text(path.read_text().replace('"sha256": "', '"sha256": "0'))
    check = canary.certify(run.directory, environment=environment, episodes=20)["environment_check"]
    assert check["compared"]
    assert "has changed since" in check["sentence"]
    path.unlink()
    check = canary.certify(run.directory, environment=environment, episodes=20)["environment_check"]
    assert (check["compared"], "no episodes of this policy" in check["sentence"]) == (False, True)


def test_randomness_of_its_own_cannot_be_compared(tmp_path: Path):
    environment = from_gymnasium(Forgetful, horizon=9)
    run = trained(environment, tmp_path)
    certificate = canary.certify(run.directory, environment=environment, episodes=20)
    said = "could not be compared: it has randomness of its own"
    assert certificate["environment_check"]["compared"] is False
    assert said in certificate["environment_check"]["sentence"]
    assert said in render_page(certificate)
    console = Console(record=True, width=200, file=io.StringIO())
    print_certificate(console, certificate)
    assert said in console.export_text()
    (problem,) = verify_file(run.directory, environment=environment, replay=True)["problems"]
    assert "could not be compared" in problem


def test_the_file_that_defines_an_environment_is_known():
    found = source_file(LateCost())
    assert found is not None
    assert found["file"] == Path(__file__).name
    host = source_file(from_gymnasium(WALK, horizon=9))
    assert host is not None
    assert host["file"] == "host_environments.py"
    assert source_file(from_gymnasium(lambda: Forgetful(), horizon=9)) is None
    assert source_file(IcyLake()) is None
