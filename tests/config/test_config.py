"""Configurations: built from few choices, changed by name, read back without loss, explained when
wrong."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.algorithms import ALGORITHMS
from canary.algorithms.cantelli_cpo import CantelliCPOConfig
from canary.config import names
from canary.config.config import (
    RunConfig,
    TrainingConfig,
    config_from_dict,
    config_to_dict,
    make_config,
)
from canary.config.presets import PAPER_BATCHES, PRESETS, of_kind
from canary.constraints import CVaR, Mean
from canary.environments import ENVIRONMENTS
from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from canary.runs.seeds import make_trainer
from canary.types import Chance
from problems.probe_environments import Price


def through_json(config: RunConfig, environment=None) -> RunConfig:
    return config_from_dict(json.loads(json.dumps(config_to_dict(config))), environment)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_builds_and_survives_json(environment, algorithm, preset):
    config = make_config(environment, algorithm, preset=preset, total_steps=100_000)
    assert through_json(config) == config
    trainer = make_trainer(config)
    paper = of_kind(config.environment, PAPER_BATCHES)
    assert config.constraint == config.environment.default_constraint
    if preset == "paper":
        assert (trainer.environments, trainer.rollout_length) == (
            paper.environments,
            paper.rollout_length,
        )
    assert trainer.cost_discount == config.algorithm.estimation.cost_discount


def test_the_paper_preset_is_the_papers_table():
    algorithm = make_config("IcyLake", "canary", preset="paper").algorithm
    assert algorithm.estimation.hidden == (256, 256)
    assert (algorithm.estimation.reward_discount, algorithm.estimation.cost_discount) == (0.99, 1.0)
    assert algorithm.estimation.gae_lambda == 0.95
    critic, step = algorithm.critic, algorithm.trust_region
    assert (critic.learning_rate, critic.epochs, critic.minibatches, critic.gradient_clip) == (
        3e-4,
        80,
        1,
        0.5,
    )
    assert (step.target_kl, step.damping, step.backtracks, step.shrink) == (0.01, 0.1, 10, 0.8)


@pytest.mark.parametrize("algorithm", ["canary", "cpo", "cvar-cpo", "ppo"])
def test_authors_is_paper_with_the_other_reading(algorithm):
    reading = () if algorithm == "ppo" else ("algo.reading=authors",)
    paper = make_config(algorithm=algorithm, preset="paper", overrides=reading)
    assert make_config(algorithm=algorithm, preset="authors") == dataclasses.replace(
        paper, preset="authors"
    )


def test_names_for_people_are_the_names_of_the_program():
    assert set(names.ALGORITHMS) == set(ALGORITHMS)
    assert set(names.PRESETS) == set(PRESETS)


@settings(deadline=None, max_examples=60)
@given(
    seeds=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5, unique=True),
    hidden=st.lists(st.integers(1, 300), min_size=1, max_size=3),
    numbers=st.tuples(*[st.floats(1e-6, 1.0, exclude_max=True)] * 4),
    flags=st.tuples(st.booleans(), st.booleans()),
    reading=st.sampled_from(["equations", "authors"]),
)
def test_any_configuration_survives_json(seeds, hidden, numbers, flags, reading):
    target_kl, decay, limit, epsilon = numbers
    config = make_config(
        algorithm="cantelli-cpo",
        constraint=Chance(limit=limit, epsilon=epsilon),
        seeds=seeds,
        stagger=flags[0],
        overrides=(
            f"algo.hidden={json.dumps(hidden)}",
            f"algo.target_kl={target_kl!r}",
            f"algo.gae_lambda={decay!r}",
            f"algo.clock={flags[1]}",
            f"algo.reading={reading}",
            "env.map=SFF/FHG",
        ),
    )
    assert through_json(config) == config
    assert config.training.seeds == tuple(seeds)
    assert config.algorithm.estimation.hidden == tuple(hidden)
    assert (config.algorithm.trust_region.target_kl, config.algorithm.estimation.gae_lambda) == (
        target_kl,
        decay,
    )
    assert config.algorithm.estimation.clock is flags[1]
    assert config.environment == IcyLake(map="SFF/FHG")
    hash(config)  # compiled functions keep it as a constant


@pytest.mark.parametrize(
    ("item", "read", "value"),
    [
        ("algo.target_kl=0.02", lambda c: c.algorithm.trust_region.target_kl, 0.02),
        ("algo.trust_region.target_kl=0.02", lambda c: c.algorithm.trust_region.target_kl, 0.02),
        ("algo.epochs=3", lambda c: c.algorithm.critic.epochs, 3),
        ("algo.clock=True", lambda c: c.algorithm.estimation.clock, True),
        ("algo.initial_std=2", lambda c: c.algorithm.estimation.initial_std, 2.0),
        ("algo.initial_std=none", lambda c: c.algorithm.estimation.initial_std, None),
        ("algo.cost_discount=1", lambda c: c.algorithm.estimation.cost_discount, 1.0),
        (
            "algo.reading=equations",
            lambda c: c.algorithm.trust_region.reading,
            "equations",
        ),
        ("training.total_steps=1e6", lambda c: c.training.total_steps, 1_000_000),
        ("training.seeds=[4, 2]", lambda c: c.training.seeds, (4, 2)),
        ("training.stagger=false", lambda c: c.training.stagger, False),
        ("constraint.epsilon = 0.1", lambda c: c.constraint.epsilon, 0.1),
        ("env.map=8x8", lambda c: c.environment.map, "8x8"),
        ("env.slip=0", lambda c: c.environment.slip, 0.0),
    ],
)
def test_overrides_set_one_value_of_the_right_type_and_nothing_else(item, read, value):
    # `paper`, because `fast` follows the problem: another epsilon is another window.
    before = make_config(preset="paper")
    after = make_config(preset="paper", overrides=(item,))
    assert read(after) == value
    assert type(read(after)) is type(value)
    assert read(before) != value or before == after
    changed, original = config_to_dict(after), config_to_dict(before)
    assert sum(differences(changed, original)) <= 1


def test_settings_that_need_each_other_may_stand_in_any_order():
    long = ("env.map=S" + "F" * 150 + "G", "env.horizon=500")
    assert make_config(overrides=long) == make_config(overrides=long[::-1])
    with pytest.raises(CanaryError, match="raise the horizon"):
        make_config(overrides=long[:1])
    with pytest.raises(CanaryError, match="must be a number"):
        make_config(overrides=("algo.ratio_clip=x", "env.horizon=500"))
    assert make_config(overrides=("env.horizon=500", "env.horizon=300")).environment.horizon == 300


def differences(one, other):
    """A one for every leaf in which two nested tables differ."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            yield from differences(one[key], other[key])
    else:
        yield one != other


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        ("algo.targt_kl=0.1", "did you mean target_kl"),
        ("algo.trust_region.damp=0.1", "did you mean damping"),
        ("training.seed=[1]", "did you mean seeds"),
        ("env.slipp=0.1", "did you mean slip"),
        ("alg.target_kl=0.1", "did you mean algo"),
        ("nowhere.x=1", "known are algo, constraint, env, training"),
        ("algo.target_kl=big", "must be a number"),
        ("algo.target_kl=NaN", "finite"),
        ("algo.target_kl=Infinity", "finite"),
        ("algo.target_kl=true", "must be a number"),
        ("algo.target_kl=1" + "0" * 400, "less than 2\\*\\*63"),
        ("algo.epochs=2.5", "whole number"),
        ("algo.epochs=Infinity", "whole number"),
        ("training.chunk=true", "whole number"),
        ("training.total_steps=1" + "0" * 400, "less than 2\\*\\*63"),
        ("algo.clock=1", "true or false"),
        ("algo.reading=autors", "one of equations, authors"),
        ("algo.hidden=256", r"must be a list such as \[64\] or 64,64, not 256"),
        ("algo.hidden=[16, x]", "must be a whole number"),
        ("algo.hidden=[16, 2.5]", "whole number"),
        ("algo.trust_region=1", "group of settings"),
        ("algo.target_kl.more=1", "single value"),
        ("algo.target_kl", "section.setting=value"),
        ("target_kl=1", "section.setting=value"),
        ("constraint.limit=0", "positive"),
        ("constraint.epsilon=1", "between 0 and 1"),
        ("training.seeds=[1, 1]", "different"),
        ("training.seeds=[-1]", "at least 0"),
        ("training.seeds=[]", "At least one seed"),
        ("training.total_steps=10", "less than one update.*give more, or .*training.environments"),
        ("training.environments=0", "at least 1"),
        ("env.slip=0.6", "slip"),
        ("env.map=SFX", "'X'"),
    ],
)
def test_wrong_overrides_end_in_one_sentence(item, sentence):
    with pytest.raises(CanaryError, match=sentence) as caught:
        make_config(algorithm="cantelli-cpo", overrides=(item,))
    text = str(caught.value)
    assert text.endswith((".", "?"))
    assert "\n" not in text


def test_names_are_found_whatever_their_case_and_dashes():
    config = make_config("icy-lake", "CVaR_CPO", preset="Paper")
    assert (config.environment_name, config.algorithm_name, config.preset) == (
        "IcyLake",
        "cvar-cpo",
        "paper",
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"env": "IceLake"}, "did you mean IcyLake"),
        ({"env": "LunarLander-v3", "cost": "info:cost"}, "try gymnasium:LunarLander-v3"),
        ({"env": 3}, "not an environment"),
        ({"algorithm": "canari"}, "did you mean canary"),
        ({"preset": "slow"}, "known are fast, paper"),
        ({"env": Price()}, "pass constraint"),
        ({"total_steps": "many"}, "whole number"),
        ({"unknown": 1}, "no setting 'unknown'"),
    ],
)
def test_wrong_choices_end_in_one_sentence(arguments, sentence):
    with pytest.raises(CanaryError, match=sentence):
        make_config(**arguments)


def test_an_environment_of_ones_own():
    constraint = Chance(limit=1.0, epsilon=0.1)
    config = make_config(Price(), constraint=constraint, total_steps=5000)
    assert config.environment_name == "Price"
    assert through_json(config, Price()) == config
    with pytest.raises(CanaryError, match="not a named environment"):
        through_json(config)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.pop("algorithm"),
        lambda data: data.update(environment=3),
        lambda data: data["environment"].update(name=["IcyLake"]),
        lambda data: data["environment"].update(name="Nowhere"),
        lambda data: data["algorithm"].update(method="nothing"),
        lambda data: data["algorithm"].update(settings=[]),
        lambda data: data["algorithm"]["settings"].update(estimation=None),
        lambda data: data["algorithm"]["settings"]["clipped"].update(ratio_clip="x"),
        lambda data: data["algorithm"]["settings"].update(more=1),
        lambda data: data["constraint"].pop("limit"),
        lambda data: data["constraint"].update(limit=None),
        lambda data: data["training"].update(seeds=[0.5]),
        lambda data: data["training"].update(chunk=float("inf")),
    ],
)
def test_damaged_configurations_end_in_one_sentence(spoil):
    data = config_to_dict(make_config())
    spoil(data)
    with pytest.raises(CanaryError) as caught:
        config_from_dict(data)
    assert "\n" not in str(caught.value)


def test_an_algorithm_of_ones_own_has_to_be_imported_first():
    data = config_to_dict(make_config())
    data["algorithm"] |= {"name": "my-own", "method": "my-own"}
    with pytest.raises(CanaryError, match=r"'my-own'.*in Python, import the module that adds it"):
        config_from_dict(data)


def test_training_counts_whole_updates():
    training = TrainingConfig(total_steps=2500, environments=5, rollout_length=200)
    assert (training.batch, training.updates) == (1000, 2)


def test_configurations_cannot_be_changed_in_place():
    config = make_config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.training.chunk = 3  # ty: ignore


class Suggesting(Price):
    default_constraint = Mean(limit=0.5)


class Tailed(Price):
    default_constraint = CVaR(limit=5.0, epsilon=0.1)


class Nonsense(Price):
    default_constraint = 5.0


def test_an_environment_may_suggest_a_constraint_of_any_kind():
    def constraint(env: Any, said: Any = None) -> Any:
        return make_config(env, "ppo-lagrangian", said).constraint

    assert constraint(Suggesting()) == Mean(0.5)
    assert constraint(Tailed()) == CVaR(5.0, 0.1)
    assert constraint(Suggesting(), {"limit": 2.0}) == Mean(2.0)
    assert constraint(Tailed(), {"epsilon": 0.2}) == CVaR(5.0, 0.2)
    assert constraint(Tailed(), {"kind": "chance"}) == Chance(5.0, 0.1)
    assert constraint(Suggesting(), {"kind": "cvar", "epsilon": 0.2}) == CVaR(0.5, 0.2)
    for env, said, sentence in (
        (Suggesting(), {"kind": "chance"}, r"is on the mean cost and has no epsilon: say the eps"),
        (Suggesting(), {"epsilon": 0.1}, "which is what Suggesting limits, has no epsilon"),
        (Nonsense(), None, r"default_constraint of Nonsense must be canary\.Chance.*not 5\.0"),
    ):
        with pytest.raises(CanaryError, match=sentence):
            constraint(env, said)


def test_a_constraint_of_another_kind_is_refused():
    with pytest.raises(CanaryError, match=r"must be canary\.Chance"):
        make_config(constraint=3)  # type: ignore[arg-type]


def test_a_preset_sees_the_problem_as_it_is_put():
    """Two violations are expected in the window, and a batch of continuous control holds the steps
    of four whole episodes."""

    def window(*overrides: str) -> int:
        return make_config("IcyLake", overrides=overrides).algorithm.estimation.window

    assert window() == 100
    assert window("constraint.epsilon=0.001") == 2000
    assert window("constraint.epsilon=0.5") == 20
    assert window("constraint.epsilon=0.001", "algo.window=50") == 50
    for name in ("PointGoal", "PointGoal2500"):
        config = make_config(name)
        assert config.training.batch >= 4 * config.environment.horizon
    assert isinstance(make_config(preset="paper").algorithm, CantelliCPOConfig)
    assert make_config(preset="paper").algorithm_name == "canary"
