"""Settings that make no sense are named; overrides may be typed; every setting has a reader, a
range and a reason."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from canary.algorithms import ALGORITHMS
from canary.config.catalogue import settings_of
from canary.config.config import checked, config_from_dict, config_to_dict, make_config
from canary.config.presets import PRESETS
from canary.environments import ENVIRONMENTS
from canary.errors import CanaryError

ROOT = Path(__file__).parents[2]


def test_the_defaults_of_everything_are_in_range():
    for env in ENVIRONMENTS:
        for algorithm in ALGORITHMS:
            for preset in PRESETS:
                config = make_config(env, algorithm, preset=preset)
                assert config_from_dict(config_to_dict(config)) == config


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("clipped.epochs=0", r"algo\.clipped\.epochs must be at least 1, not 0\."),
        ("entropy=-0.1", r"algo\.clipped\.entropy must be at least 0, not -0\.1\."),
        ("window_batches=0", r"algo\.estimation\.window_batches must be at least 1, not 0\."),
        ("ratio_clip=0", r"algo\.clipped\.ratio_clip must be positive, not 0"),
        ("dead_zone=0.995", r"algo\.dead_zone must be at most 0\.99, not 0\.995"),
        ("hidden=[8,0]", r"algo\.estimation\.hidden must be at least 1, not 0\."),
        (
            "reward_discount=1.01",
            r"algo\.estimation\.reward_discount must be at most 1, not 1\.01\.",
        ),
        ("window=5000000000", r"at most 2147483647"),
    ],
)
def test_what_makes_no_sense_is_named(setting: str, sentence: str):
    with pytest.raises(CanaryError, match=sentence):
        make_config(overrides=(f"algo.{setting}",))


def test_stored_configurations_are_checked_too():
    config = make_config()
    broken = replace(
        config,
        algorithm=replace(config.algorithm, clipped=replace(config.algorithm.clipped, epochs=-1)),
    )
    with pytest.raises(CanaryError, match="epochs"):
        checked(broken)
    with pytest.raises(CanaryError, match="epochs"):
        config_from_dict(config_to_dict(broken))


def test_overrides_may_be_a_dictionary_of_values():
    texts = (
        "algo.hidden=64,32",
        "algo.initial_std=none",
        "training.total_steps=1e6",
        "env.map=8x8",
    )
    values = {
        "algo.hidden": np.array([64, 32]),
        "algo.initial_std": None,
        "training.total_steps": np.int64(1_000_000),
        "env.map": "8x8",
    }
    assert make_config(overrides=values) == make_config(overrides=texts)
    with pytest.raises(CanaryError, match=r"algo\.dead_zone must be a number, not \[1\]"):
        make_config(overrides={"algo.dead_zone": [1]})


def test_a_short_name_of_two_settings_says_which_ones_it_could_mean():
    with pytest.raises(
        CanaryError,
        match=r"could mean algo.estimation.hidden or algo.distribution.hidden; say which",
    ):
        make_config("IcyLake", "cvar-cpo", overrides=("algo.hidden=64,64",))
    said = make_config("IcyLake", "cvar-cpo", overrides=("algo.distribution.hidden=64,64",))
    assert said.algorithm.distribution.hidden == (64, 64)


def test_the_order_of_overrides_does_not_matter():
    """Numbers are judged together at the end: half way, 10 steps are less than one update."""
    overrides = ("training.total_steps=10", "training.environments=2", "training.rollout_length=5")
    assert make_config(overrides=overrides) == make_config(overrides=overrides[::-1])


def test_settings_of_another_version_are_a_sentence():
    data = config_to_dict(make_config("EcoAnt", "cppo"))
    data["algorithm"]["settings"]["threshold"] = "tail-mean"
    with pytest.raises(CanaryError, match="Use the version that trained it"):
        config_from_dict(data)


def test_minibatches_fit_into_a_batch():
    with pytest.raises(CanaryError, match="more than the 1000 steps of a batch"):
        make_config("IcyLake", "cantelli-cpo", overrides=("algo.critic.minibatches=1001",))


def test_every_setting_has_a_default_a_range_and_a_meaning():
    for name in [*ALGORITHMS, *ENVIRONMENTS, "training"]:
        rows = settings_of(name)
        assert rows
        for row in rows:
            assert all(row.values()), row
            assert "typing" not in row["range"], row
            assert "class" not in row["range"], row
    (row,) = [row for row in settings_of("Canary") if row["setting"] == "algo.dead_zone"]
    assert row["default"] == "0.5"
    assert row["range"] == ">= 0, <= 0.99"
    assert len(settings_of("canary")) <= 18
    with pytest.raises(CanaryError, match="did you mean canary"):
        settings_of("canari")


def test_every_default_that_is_shown_can_be_set():
    for name in ALGORITHMS:
        overrides = [f"{row['setting']}={row['default']}" for row in settings_of(name)]
        config = make_config("IcyLake", name, overrides=overrides)
        assert config.algorithm == ALGORITHMS[name]()


def test_every_setting_has_somebody_who_turns_it():
    """In a preset, a study, a learning test or a table of the docs; what has not is a constant."""
    used = [
        ROOT / "src/canary/config/presets.py",
        ROOT / "src/canary/studies/catalogue.py",
        ROOT / "README.md",
    ]
    used += [
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "tests/test_learning.py",
        ROOT / "tests/test_training.py",
    ]
    words = set(re.findall(r"\w+", " ".join(path.read_text() for path in used)))
    names = {
        row["setting"].rpartition(".")[2]
        for name in [*ALGORITHMS, *ENVIRONMENTS]
        for row in settings_of(name)
    }
    assert not names - words
