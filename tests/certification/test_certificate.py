"""A certificate holds as issued; any change of anything in it is found out, hash recomputed or not."""

import copy
import json
from typing import Any

import pytest

from canary.certification.certificate import Certificate, Result, content_hash, summarise, to_dict, verify
from canary.certification.plan import Plan
from canary.certification.verdict import Evidence, assess
from canary.types import Chance

SETTINGS = {"map": "4x4", "slip": 1 / 3, "horizon": 100}


def issue(plan: Plan, counts: dict[int, tuple[tuple[float, int], ...]]) -> dict[str, Any]:
    chance = Chance(limit=5.5, epsilon=0.02)
    results = []
    for seed, costs in counts.items():
        episodes = sum(count for _, count in costs)
        evidence = Evidence(
            policy_sha256=f"{seed % 9:064x}",
            method="anytime" if plan.early_stop else "fixed",
            looks=-(-episodes // plan.batch),
            interrupted=False,
            costs=costs,
            return_mean=0.75,
            length_mean=20.5,
        )
        changes = {"slip": 0.2} if seed == 9 else {}
        assessment = assess(evidence, plan, chance)
        results.append(Result(seed=seed % 9, changes=changes, evidence=evidence, assessment=assessment))
    verdict, sentence = summarise(tuple(results), plan)
    return to_dict(
        Certificate(
            environment="IcyLake",
            settings=SETTINGS,
            limit=5.5,
            epsilon=0.02,
            cost_discount=1.0,
            plan=plan,
            evaluation_seed=5,
            results=tuple(results),
            verdict=verdict,
            sentence=sentence,
            origin={"run": "IcyLake-canary-1", "algorithm": "canary", "updates": 60},
            versions={"python": "3.11"},
            time="2026-01-31T14:25:30+01:00",
        )
    )


SAFE = ((0.0, 900), (3.0, 95), (6.0, 5))
FIXED = issue(Plan(episodes=1000, batch=200, early_stop=False, cost_bound=100.0), {0: SAFE})
ANYTIME = issue(
    Plan(episodes=2000, batch=250, statements=3, cost_bound=100.0),
    {0: SAFE, 1: ((0.0, 200), (8.0, 50)), 9: ((1.0, 1500),)},
)


def leaves(value: Any, path: tuple = ()):
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from leaves(value[index], (*path, index))
    else:
        yield path, value


def edited(certificate: dict[str, Any], path: tuple, value: Any, *, rehash: bool = False) -> dict[str, Any]:
    changed = copy.deepcopy(certificate)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed | {"sha256": content_hash(changed)} if rehash else changed


@pytest.mark.parametrize("certificate", [FIXED, ANYTIME])
def test_a_certificate_holds_as_issued_and_after_a_round_trip(certificate: dict[str, Any]):
    assert verify(certificate) == []
    assert verify(json.loads(json.dumps(certificate, indent=4))) == []
    hashes = {0: f"{0:064x}", 1: f"{1:064x}"}
    if certificate is FIXED:
        assert verify(certificate, hashes, SETTINGS) == []


def test_the_verdicts_are_as_expected():
    assert FIXED["verdict"] == "SATISFIED"
    assert ANYTIME["verdict"] == "VIOLATED"
    assert [result["assessment"]["verdict"] for result in ANYTIME["results"]] == [
        "SATISFIED",
        "VIOLATED",
        "SATISFIED",
    ]


def another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
    return 0.5


def test_changing_any_single_entry_is_found_out():
    for path, value in leaves(FIXED):
        assert verify(edited(FIXED, path, another(value))), path


def test_a_new_hash_hides_only_what_nothing_else_in_the_certificate_depends_on():
    """Of these, policies and settings are compared with the run, and the rest is told by replaying it."""
    hidden = {
        path for path, value in leaves(FIXED) if not verify(edited(FIXED, path, another(value), rehash=True))
    }
    evidence = {("results", 0, "evidence", name) for name in ("policy_sha256", "return_mean", "length_mean")}
    labels = {
        ("environment",),
        ("cost_discount",),
        ("evaluation_seed",),
        ("results", 0, "seed"),
        ("time",),
        ("sha256",),
    }
    how = {("plan", "deterministic"), ("plan", "batch")}
    rest = {path for path in hidden if path[0] in ("settings", "origin", "versions")}
    assert hidden == evidence | labels | how | rest


RESULT = ("results", 0)
FORGERIES = {
    "fewer violations": ((*RESULT, "evidence", "costs", 2, 1), 1),
    "another cost": ((*RESULT, "evidence", "costs", 2, 0), 5.0),
    "more clean episodes": ((*RESULT, "evidence", "costs", 0, 1), 3000),
    "counted violations": ((*RESULT, "assessment", "violations"), 0),
    "a better bound": ((*RESULT, "assessment", "upper"), 0.001),
    "a better tail": ((*RESULT, "assessment", "conditional_value_at_risk_upper"), 1.0),
    "another verdict": (("verdict",), "SATISFIED"),
    "another sentence": (("sentence",), "All is well."),
    "another limit": (("limit",), 4.0),
    "another epsilon": (("epsilon",), 0.001),
    "another confidence": (("plan", "confidence"), 0.99),
    "another correction": (("plan", "statements"), 7),
    "another method": ((*RESULT, "evidence", "method"), "other"),
    "no interruption": ((*RESULT, "evidence", "looks"), 1),
    "a tighter cost bound": (("plan", "cost_bound"), 5.0),
    "unordered costs": ((*RESULT, "evidence", "costs", 0, 0), 99.0),
    "negative counts": ((*RESULT, "evidence", "costs", 0, 1), -3),
    "another format": (("format",), 99),
    "text for a number": ((*RESULT, "assessment", "upper"), "small"),
    "nothing for a list": (("results",), None),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forging_what_matters_is_found_out_even_with_a_new_hash(name: str):
    path, value = FORGERIES[name]
    problems = verify(edited(ANYTIME, path, value, rehash=True))
    assert problems
    assert not any("SHA-256" in problem for problem in problems)
    assert all(problem.endswith((".", ")")) for problem in problems)


def test_a_fixed_plan_cannot_be_cut_short_or_become_one_afterwards():
    for path, value in (
        ((*RESULT, "evidence", "costs", 0, 1), 800),
        (("plan", "episodes"), 2000),
        (("plan", "early_stop"), True),
        ((*RESULT, "evidence", "interrupted"), True),
    ):
        assert verify(edited(FIXED, path, value, rehash=True)), path


def test_other_policies_and_settings_are_named():
    hashes = {0: "f" * 64}
    assert verify(FIXED, hashes) == [
        "The policy of seed 0 is not the one that was certified: its hash differs."
    ]
    assert "no policy of seed 1" in verify(ANYTIME, {0: f"{0:064x}"})[0]
    assert verify(FIXED, None, SETTINGS | {"slip": 0.2}) == [
        "The environment's settings differ from the certificate's in slip."
    ]


def test_what_is_no_certificate_is_refused_in_a_sentence():
    for nonsense in (
        {},
        {"format": 1},
        {"format": 1, "results": 3},
        {**FIXED, "plan": {"confidence": "high"}},
    ):
        assert verify(nonsense)
    for path, _ in leaves(FIXED):
        verify(edited(FIXED, path, None, rehash=True))
        verify(edited(FIXED, path, [], rehash=True))
