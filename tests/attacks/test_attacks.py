"""Hostile files, environments and settings: each ends in a sentence."""

import json
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from canary.cli.main import main
from canary.environments.icy_lake import IcyLake as OurLake
from canary.errors import CanaryError
from canary.runs.devices import REQUIRED, prepare_devices
from canary.runs.environment import describe_environment, environment_changes, open_config
from runs.untrained_runs import LAKE, untrained_run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs"))


def sentence(capsys, *arguments: str) -> str:
    """What a command says that must end with a mistake of the caller."""
    assert main(list(arguments)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@dataclass(frozen=True, kw_only=True)
class IcyLake(OurLake):
    """Another environment of the same name and settings: nothing costs anything."""

    def step(self, state, action, key):
        after = super().step(state, action, key)
        return eqx.tree_at(lambda s: s.cost, after, jnp.zeros(()))


def test_an_environment_is_known_by_where_it_comes_from(run):
    mine = IcyLake(map=LAKE.map, horizon=LAKE.horizon)
    with pytest.raises(CanaryError, match=r"it is .*test_attacks:IcyLake, not canary's IcyLake"):
        open_config(run, mine)
    stored = json.loads(json.dumps(describe_environment(mine)))
    assert environment_changes(stored, mine) == []
    assert environment_changes(stored, LAKE)[0].startswith("it is canary's IcyLake, not ")


@pytest.mark.parametrize("name", REQUIRED)
def test_settings_of_jax_that_change_numbers_are_refused(name):
    before = getattr(jax.config, name)
    try:
        jax.config.update(name, not before if isinstance(before, bool) else "rbg")
        with pytest.raises(CanaryError, match=f"unset {name.upper()}"):
            prepare_devices()
    finally:
        jax.config.update(name, before)
    prepare_devices()


def test_code_that_ends_the_process_and_a_deleted_directory_are_sentences(
    capsys, tmp_path, monkeypatch
):
    arguments = ("--limit", "1", "--epsilon", "0.1", "--out", str(tmp_path))
    assert "sys:exit" in sentence(capsys, "train", "--env", "sys:exit", *arguments)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "no module 'shop'" in sentence(capsys, "train", "--env", "shop:Shop", *arguments)
    assert "Cannot write runs" in sentence(capsys, "train", "--seeds", "1", "--quiet")
