"""Configurations: built from few choices, changed by name, read back, explained when wrong."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canary.algorithms import ALGORITHMS
from canary.algorithms.base import EstimationConfig
from canary.algorithms.canary import CanaryConfig
from canary.config.config import make_config, settings_table
from canary.config.presets import PAPER_BATCHES, PRESETS, of_kind
from canary.config.run_config import RunConfig, config_from_dict, config_to_dict
from canary.constraints import Chance, CVaR, Mean
from canary.environments import ENVIRONMENTS
from canary.errors import CanaryError
from canary.runs.seeds import make_trainer
from canary.runs.settings import differences
from problems.faulty_environments import Walk

ROOT = Path(__file__).parents[2]


def through_json(config: RunConfig, environment=None) -> RunConfig:
    return config_from_dict(json.loads(json.dumps(config_to_dict(config))), environment)


@pytest.mark.parametrize(
    ("environment", "algorithm"),
    [*product(["IcyLake"], ALGORITHMS), *product(ENVIRONMENTS, ["canary"])],
)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_builds_and_survives_json(environment, algorithm, preset):
    config = make_config(environment, algorithm, preset=preset, total_steps=100_000)
    assert through_json(config) == config
    hash(config)  # compiled functions keep it as a constant
    trainer = make_trainer(config)
    assert config.constraint == config.environment.default_constraint
    if preset == "paper":
        batches = of_kind(config.environment, PAPER_BATCHES)
        found = trainer.environments, trainer.rollout_length
        assert found == (batches.environments, batches.rollout_length)


def test_the_paper_preset_is_the_papers_table():
    algorithm = make_config("IcyLake", "canary", preset="paper").algorithm
    estimation, critic, step = algorithm.estimation, algorithm.critic, algorithm.trust_region
    assert (estimation.hidden, estimation.gae_lambda) == ((256, 256), 0.95)
    assert (estimation.reward_discount, estimation.cost_discount) == (0.99, 1.0)
    fit = critic.learning_rate, critic.epochs, critic.minibatches, critic.gradient_clip
    assert fit == (3e-4, 80, 1, 0.5)
    assert (step.target_kl, step.damping, step.backtracks, step.shrink) == (0.01, 0.1, 10, 0.8)


@pytest.mark.parametrize("algorithm", ["canary", "cpo", "cvar-cpo", "ppo"])
def test_authors_is_paper_with_the_other_reading(algorithm):
    reading = () if algorithm == "ppo" else ("algo.reading=authors",)
    paper = make_config(algorithm=algorithm, preset="paper", overrides=reading)
    assert make_config(algorithm=algorithm, preset="authors") == replace(paper, preset="authors")


@pytest.mark.parametrize(
    ("item", "read", "value"),
    [
        ("algo.target_kl=0.02", lambda c: c.algorithm.trust_region.target_kl, 0.02),
        ("algo.epochs=3", lambda c: c.algorithm.critic.epochs, 3),
        ("algo.hidden=4,2", lambda c: c.algorithm.estimation.hidden, (4, 2)),
        ("algo.initial_std=none", lambda c: c.algorithm.estimation.initial_std, None),
        ("algo.reading=equations", lambda c: c.algorithm.trust_region.reading, "equations"),
        ("training.seeds=[4, 2]", lambda c: c.training.seeds, (4, 2)),
        ("constraint.epsilon = 0.1", lambda c: c.constraint.epsilon, 0.1),
        ("env.map=8x8", lambda c: c.environment.map, "8x8"),
    ],
)  # fmt: skip
def test_overrides_set_one_value_of_the_right_type_and_nothing_else(item, read, value):
    # `paper`, because `fast` follows the problem: another epsilon is another window.
    before = make_config(preset="paper")
    after = make_config(preset="paper", overrides=(item,))
    assert read(after) == value
    assert type(read(after)) is type(value)
    assert len(differences(config_to_dict(before), config_to_dict(after))) <= 1
    assert through_json(after) == after


def test_overrides_may_be_a_dictionary_in_any_order():
    texts = ("algo.hidden=64,32", "algo.initial_std=none", "training.total_steps=1e6")
    values = {
        "training.total_steps": np.int64(1_000_000),
        "algo.initial_std": None,
        "algo.hidden": np.array([64, 32]),
    }
    assert make_config(overrides=values) == make_config(overrides=texts)
    # Numbers are judged together: half way, 10 steps are no update.
    pairs = ("training.total_steps=10", "training.environments=2", "training.rollout_length=5")
    assert make_config(overrides=pairs) == make_config(overrides=pairs[::-1])


WRONG = [
    ("algo.targt_kl=0.1", "did you mean target_kl"),
    ("nowhere.x=1", "known are algo, constraint, env, training"),
    ("algo.target_kl=NaN", "finite"),
    ("algo.epochs=2.5", "whole number"),
    ("algo.epochs=0", r"algo\.critic\.epochs must be at least 1, not 0\."),
    ("algo.reward_discount=1.01", r"estimation\.reward_discount must be at most 1, not 1\.01"),
    ("training.total_steps=1" + "0" * 400, r"less than 2\*\*63"),
    ("algo.target_kl", "section.setting=value"),
    ("constraint.epsilon=1", "between 0 and 1"),
    ("training.seeds=[1, 1]", "each once"),
    ("training.total_steps=10", "less than one update.*give more, or .*training.environments"),
    ("env.slip=0.6", "slip"),
]


@pytest.mark.parametrize(("item", "sentence"), WRONG)
def test_wrong_overrides_end_in_one_sentence(item, sentence):
    with pytest.raises(CanaryError, match=sentence) as caught:
        make_config(algorithm="cantelli-cpo", overrides=(item,))
    text = str(caught.value)
    assert text.endswith((".", "?"))
    assert "\n" not in text


def test_names_are_found_whatever_their_case_and_dashes():
    config = make_config("icy-lake", "CVaR_CPO", preset="Paper")
    names = config.environment_name, config.algorithm_name, config.preset
    assert names == ("IcyLake", "cvar-cpo", "paper")
    with pytest.raises(CanaryError, match=r"estimation\.hidden or algo\.distribution\.hidden"):
        make_config("IcyLake", "cvar-cpo", overrides=("algo.hidden=64,64",))
    with pytest.raises(CanaryError, match="no setting 'unknown'"):
        make_config(unknown=1)
    with pytest.raises(CanaryError, match="try gymnasium:LunarLander-v3"):
        make_config("LunarLander-v3", cost="info:cost")
    with pytest.raises(CanaryError, match="env has no setting 'nose'; did you mean noise"):
        make_config("problems.faulty_environments:Walk", overrides=("env.nose=1",))
    with pytest.raises(CanaryError, match=r"without \.py: shop:Shop"):
        make_config("shop.py:Shop")
    with pytest.raises(CanaryError, match=r"known are.* your own is package\.module:Class"):
        make_config("shop")


def test_settings_may_be_an_object():
    """What is named in it is kept, and the preset chooses the rest: as overrides do."""
    said = CanaryConfig(dead_zone=0.5, estimation=EstimationConfig(gae_lambda=0.8))
    config = make_config("IcyLake", said)
    overrides = {"algo.dead_zone": 0.5, "algo.gae_lambda": 0.8}
    assert config == make_config("IcyLake", overrides=overrides)
    assert config.algorithm_name == "canary"
    assert make_config("IcyLake", CanaryConfig) == make_config("IcyLake")
    assert make_config("EcoAnt", config.algorithm).algorithm == config.algorithm  # all was named
    changed = make_config("IcyLake", said, overrides={"algo.dead_zone": 0.6})
    assert changed.algorithm.dead_zone == 0.6
    with pytest.raises(CanaryError, match="trains CantelliCPOConfig instead of CanaryConfig"):
        make_config("IcyLake", said, preset="paper")


def test_an_environment_of_ones_own():
    config = make_config(Walk(), constraint=Chance(limit=1.0, epsilon=0.1), total_steps=5000)
    assert config.environment_name == "Walk"
    assert through_json(config, Walk()) == config
    with pytest.raises(CanaryError, match="not one of canary's own"):
        through_json(config)
    with pytest.raises(CanaryError, match="pass constraint"):
        make_config(Walk())


@pytest.mark.parametrize(
    "changes", [{"algorithm": None}, {"environment": 3}, {"constraint": {"kind": "chance"}}]
)
def test_damaged_configurations_end_in_one_sentence(changes):
    with pytest.raises(CanaryError) as caught:
        config_from_dict(config_to_dict(make_config()) | changes)
    assert "\n" not in str(caught.value)


class Suggesting(Walk):
    default_constraint = Mean(limit=0.5)


class Tailed(Walk):
    default_constraint = CVaR(limit=5.0, epsilon=0.1)


class Nonsense(Walk):
    default_constraint = 5.0


def test_an_environment_may_suggest_a_constraint_of_any_kind():
    def constraint(env: Any, said: Any = None) -> Any:
        return make_config(env, "ppo-lagrangian", said).constraint

    assert constraint(Suggesting()) == Mean(0.5)
    assert constraint(Tailed(), {"epsilon": 0.2}) == CVaR(5.0, 0.2)
    assert constraint(Tailed(), {"kind": "chance"}) == Chance(5.0, 0.1)
    changes = {"constraint.limit": 2, "constraint.epsilon": "0.3"}
    assert make_config(Walk(), overrides=changes).constraint == Chance(2.0, 0.3)
    means = make_config(Tailed(), "ppo-lagrangian", overrides=("constraint.kind=mean",))
    assert means.constraint == Mean(5.0)
    for env, said, sentence in (
        (Suggesting(), {"kind": "chance"}, "Suggesting has no default epsilon"),
        (Nonsense(), None, r"default_constraint of Nonsense must be canary\.Chance.*not 5\.0"),
    ):
        with pytest.raises(CanaryError, match=sentence):
            constraint(env, said)


def test_every_setting_has_a_default_a_range_and_a_meaning():
    for name in [*ALGORITHMS, *ENVIRONMENTS, "training"]:
        for row in settings_table(name):
            assert all(row.values()), row
            assert "typing" not in row["range"], row
            assert "class" not in row["range"], row
    (row,) = [row for row in settings_table("Canary") if row["setting"] == "algo.dead_zone"]
    assert row["range"] == "number >= 0, <= 0.99"
    assert float(row["default"]) == CanaryConfig().dead_zone
    with pytest.raises(CanaryError, match="did you mean canary"):
        settings_table("canari")
