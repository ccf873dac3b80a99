"""Every mistake of an environment gets a sentence: the field, what was found, what is expected."""

import json
import time
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest

import canary
from canary.checking.record import (
    behaviour_differences,
    findings_in,
    fingerprint,
    first_record,
    raise_first_error,
)
from canary.checking.structure import check_structure
from canary.checking.yardstick import Played, advise, constant_actions, full_check
from canary.cli import show
from canary.cli.main import main
from canary.constraints import Joint
from canary.environments import from_gymnasium
from canary.environments.icy_lake import IcyLake
from canary.errors import CanaryError
from problems import faulty_environments as faulty
from problems.host_environments import Forgetful
from problems.host_environments import Walk as HostWalk


def texts(report: dict) -> str:
    return "\n".join(finding["text"] for finding in report["findings"])


def test_a_good_environment_passes_and_constant_actions_measure_its_limit():
    report = full_check(faulty.Walk(), constraint=canary.Chance(15.0, 0.2), episodes=64)
    assert (report["ok"], report["findings"]) == (True, [])
    assert report["settings"] == {"horizon": 12, "noise": 0.5, "fault": ""}
    json.dumps(report, allow_nan=False)
    (cost,) = report["costs"]
    assert cost["advice"]["kind"] in ("interesting", "trivial")
    names = ["random actions", "low", "middle", "high"]
    assert [one["policy"] for one in cost["policies"]] == names
    assert all(one["episodes"] == 64 for one in cost["policies"])
    assert all(0 <= one["constraint_value"] <= 1 for one in cost["policies"])
    names = [f"action {index}" for index in range(4)]
    assert list(constant_actions(IcyLake().action_space)) == names


TRACED = [
    (faulty.Walk, "Walk is a class; pass an instance of it: Walk()"),
    (object(), "object is not an environment: it has no horizon, no observation_size"),
    (HostWalk(), "it looks like a Gymnasium environment: use canary.environments.from_gymnasium"),
    (faulty.WrongSize(), r"observation of .* float32 of shape \(2,\).*observation_size says 3"),
    (faulty.NamedObservation(), "observation of .* is a dict; it must be a single array"),
    (faulty.CostVector(), r"cost of reset\(\) is float32 of shape \(1,\); it must be float32 of shape \(\)"),
    (faulty.NoDataclass(), "NoDataclass must be a dataclass"),
    (faulty.NoJson(), r"The setting table of NoJson is array\(\[0., 0., 0.\]\), which JSON cannot hold"),
    (replace(faulty.Walk(), horizon=0), "horizon of Walk must be at least 1, not 0"),
    (faulty.PythonIf(), "step.. of PythonIf failed: TracerBoolConversionError.*jax.numpy"),
    (faulty.OtherInner(), r"inner of OtherInner is float32 of shape \(2,\) after reset.. but float32 of shape \(\)"),
    (faulty.NoTruncated(), "missing .* argument: 'truncated'"),
]  # fmt: skip


@pytest.mark.parametrize(("environment", "sentence"), TRACED, ids=lambda case: type(case).__name__)
def test_what_tracing_finds(environment, sentence):
    with pytest.raises(CanaryError, match=sentence):
        check_structure(environment)


PLAYED = [
    ("nan", "cost = nan in step 4 of lane 0; it must be finite"),
    ("start", r"cost = 2.0 after reset\(\)"),
    ("endless", "truncated = False in step 12 of lane 0; the episode must end at its horizon"),
    ("both", "truncated = True in step 4 of lane 0; an episode that ends by itself"),
    ("clock", "time = 2 in step 1 of lane 0"),
    ("negative", "cost = -.* in step 1 of lane 0; it must be at least 0"),
]


@pytest.mark.parametrize(("fault", "sentence"), PLAYED)
def test_what_a_short_rollout_finds(fault, sentence):
    environment = faulty.Odd(fault=fault)
    with pytest.raises(CanaryError, match=sentence):
        raise_first_error(findings_in(environment, first_record(environment)))


def test_what_is_odd_but_possible():
    report = full_check(faulty.Odd(fault="early"), episodes=16)
    assert report["ok"]
    assert "is truncated after 4 steps, before its horizon of 12" in texts(report)
    frozen = full_check(faulty.FrozenNoise(), episodes=16)
    assert "gave other numbers the second time" in texts(frozen)


def test_host_environments_are_checked_too():
    assert full_check(from_gymnasium(HostWalk, horizon=8), episodes=8)["findings"] == []
    forgetful = full_check(from_gymnasium(Forgetful, horizon=8), episodes=8)
    assert "gave other numbers the second time" in texts(forgetful)
    broken = full_check(from_gymnasium(HostWalk, horizon=8, fails_at=3), episodes=8)
    assert not broken["ok"]
    assert "the motor is stuck" in texts(broken)


class Sleepy(HostWalk):
    """Three steps take a second."""

    def step(self, action):
        time.sleep(0.33)
        return super().step(action)


def test_a_slow_environment_takes_no_longer_than_allowed(monkeypatch, capsys):
    """Between two steps of a host environment the check can stop."""
    monkeypatch.setattr(show, "SECONDS", 4.0)
    monkeypatch.setattr(
        "canary.config.sources.make_environment", lambda *_: from_gymnasium(Sleepy, horizon=500)
    )
    full_check(from_gymnasium(HostWalk, horizon=2), episodes=1)  # compiles
    began = time.monotonic()
    assert main(["check-env", "sleepy", "--json", "-"]) == 0
    assert time.monotonic() - began < 9
    report = json.loads(capsys.readouterr().out)
    assert report["costs"] == []
    assert "1 of 1 random episodes were cut off" in texts(report)


def test_a_callback_that_fails_is_a_finding():
    report = full_check(faulty.Calls(fault="3"), episodes=8)
    assert not report["ok"]
    assert "A Python callback of Calls failed: OSError: the line is dead" in texts(report)


def test_each_of_several_costs_has_its_own_yardstick():
    limits = [canary.Chance(15.0, 0.2), canary.Mean(1.0)]
    report = full_check(faulty.TwoCosts(), constraint=Joint(tuple(limits)), episodes=16)
    assert report["ok"]
    one, two = (cost["policies"][0] for cost in report["costs"])
    assert two["cost_mean"] == pytest.approx(2 * one["cost_mean"])
    assert two["constraint_value"] == two["cost_mean"]
    assert [cost["constraint"]["kind"] for cost in report["costs"]] == ["chance", "mean"]


def played(policy, low, high, reward):
    costs = np.random.default_rng(0).uniform(low, high, 400)
    return Played(policy, costs, np.full(400, reward))


# The safest costs 5 to 20, the richest 50 to 100
SIMPLE = [played("random actions", 30, 60, 1.0), played("low", 5, 20, 0.0), played("high", 50, 100, 3.0)]  # fmt: skip


@pytest.mark.parametrize(
    ("constraint", "kind", "words"),
    [
        (canary.Chance(1000.0, 0.05), "trivial", "High"),
        (canary.Chance(4.0, 0.05), "hopeless", "no constant or random action"),
        (
            canary.Chance(25.0, 0.05),
            "interesting",
            "Low (P(cost > 25) 0 in 400 episodes, return 0)",
        ),
        (canary.Mean(50.0), "interesting", "Random actions (mean cost 4"),
        (canary.CVaR(4.0, 0.05), "hopeless", "nearest is low"),
        (None, "no limit", "Limits worth trying"),
    ],
)
def test_advice_rests_on_what_can_be_had_without_learning(constraint, kind, words):
    advice = advise(SIMPLE, constraint)
    assert advice["kind"] == kind
    assert words.lower() in advice["text"].lower()
    assert advice["limits"] == sorted(advice["limits"])
    assert all(9 < value < 99 for value in advice["limits"])


def test_a_fingerprint_tells_behaviours_apart():
    one, same, other = (
        fingerprint(first_record(faulty.Walk(noise=noise))) for noise in (0.5, 0.5, 0.6)
    )
    assert one == same
    assert behaviour_differences(one, same) == []
    assert any(
        "observation differs from step 1 on" in text for text in behaviour_differences(one, other)
    )
    scaled = {kind: [value * (1 + 1e-5) for value in values] for kind, values in one.items()}
    assert behaviour_differences(one, scaled) == []  # another machine's rounding


@dataclass(frozen=True)
class LateCost(faulty.Walk):
    """It costs more from one step on."""

    since: int = 1000

    def step(self, state, action, key):
        after = super().step(state, 0 * action, key)
        late = 1.0 * (after.time >= self.since)
        return replace(after, cost=after.cost + late, terminated=jnp.zeros((), bool))


@pytest.mark.parametrize(("since", "seen"), [(20, 20), (40, 32), (170, 160)])
def test_a_fingerprint_is_of_whole_episodes(since, seen):
    one, other = (
        fingerprint(first_record(LateCost(horizon=200, noise=0.0, since=at))) for at in (999, since)
    )
    assert behaviour_differences(one, other) == [f"the cost differs from step {seen} on"]
    assert len(one["cost"]) < 40
