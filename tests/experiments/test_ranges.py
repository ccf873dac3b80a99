"""Settings that make no sense are named; those of every algorithm and preset make sense."""

from dataclasses import replace

import pytest

from canary.algorithms import ALGORITHMS
from canary.environments import ENVIRONMENTS
from canary.errors import CanaryError
from canary.experiments.catalogue import PRESETS
from canary.experiments.config import checked, config_from_dict, config_to_dict, make_config
from canary.experiments.ranges import AT_MOST, POSITIVE, _numbers


def test_the_defaults_of_everything_are_in_range():
    for env in ENVIRONMENTS:
        for algorithm in ALGORITHMS:
            for preset in PRESETS:
                config = make_config(env, algorithm, preset=preset)
                assert config_from_dict(config_to_dict(config)) == config


def test_the_lists_name_only_settings_that_exist():
    known = {name for entry in ALGORITHMS.values() for _, name, _ in _numbers(entry.config(), "")}
    none_by_default = {"value_clip", "cost_gae_lambda", "target_kl_end", "tolerated_loss"}
    assert known | none_by_default >= POSITIVE | AT_MOST.keys()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("critic.epochs=0", r"algo\.critic\.epochs must be positive, not 0\."),
        ("damping=-0.1", r"algo\.trust_region\.damping must be at least 0, not -0\.1\."),
        ("window_batches=0", r"algo\.estimation\.window_batches must be positive, not 0\."),
        ("tolerated_loss=0", r"algo\.trust_region\.tolerated_loss must be positive, not 0"),
        ("hidden=[8,0]", r"algo\.estimation\.hidden must be positive, not 0\."),
        ("reward_discount=1.01", r"algo\.estimation\.reward_discount must be at most 1, not 1\.01\."),
        ("critic.minibatches=4001", r"more than the 4000 steps of a batch"),
        ("window=5000000000", r"at most 2147483647"),
    ],
)
def test_what_makes_no_sense_is_named(setting: str, sentence: str):
    with pytest.raises(CanaryError, match=sentence):
        make_config(overrides=(f"algo.{setting}",))


def test_stored_configurations_are_checked_too():
    config = make_config()
    broken = replace(
        config, algorithm=replace(config.algorithm, critic=replace(config.algorithm.critic, epochs=-1))
    )
    with pytest.raises(CanaryError, match="epochs"):
        checked(broken)
    with pytest.raises(CanaryError, match="epochs"):
        config_from_dict(config_to_dict(broken))
