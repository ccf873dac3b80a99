"""A certificate holds as issued; any change of anything in it is found out, hash recomputed or
not."""

import copy
import json
from typing import Any

import numpy as np
import pytest

from canary.certification import order
from canary.certification.certificate import Certificate, Result, content_hash, summarise, to_dict
from canary.certification.certify import is_decided
from canary.certification.plan import Plan
from canary.certification.verdict import Evidence, assess
from canary.certification.verification import compare, verify
from canary.types import Chance

SETTINGS = {"map": "4x4", "slip": 1 / 3, "horizon": 100, "wind": True}
CHANCE = Chance(limit=5.5, epsilon=0.02)
VALUES = (0.0, 3.0, 6.0)


def play(plan: Plan, rate: float, seed: int) -> Evidence:
    """Episodes of a policy that violates with this rate, until the plan stops them."""
    random, places = np.random.default_rng(seed), np.zeros(0, int)
    assert plan.episodes is not None
    while len(places) < plan.episodes:
        batch = random.choice(3, plan.batch, p=(0.9 - rate, 0.1, rate))
        places = np.concatenate([places, batch])[: plan.episodes]
        if plan.early_stop and is_decided(
            np.array(VALUES)[places], -(-len(places) // plan.batch), plan, CHANCE
        ):
            break
    used = sorted(set(places.tolist()))
    return Evidence(
        policy_sha256=f"{seed % 9:064x}",
        method="anytime" if plan.early_stop else "fixed",
        looks=-(-len(places) // plan.batch),
        interrupted=False,
        costs=tuple((VALUES[place], int((places == place).sum())) for place in used),
        order=order.encode([used.index(place) for place in places]),
        return_mean=0.75,
        length_mean=20.5,
    )


def issue(plan: Plan, rates: dict[int, float], **changes: Any) -> dict[str, Any]:
    """Seeds with their violation rates; seed 9 and those above are seeds 0, 1, ... under a changed
    setting."""
    results = []
    for seed, rate in rates.items():
        evidence = play(plan, rate, seed)
        shift = {"slip": 0.2} if seed >= 9 else {}
        assessment = assess(evidence, plan, CHANCE)
        results.append(
            Result(seed=seed % 9, changes=shift, evidence=evidence, assessment=assessment)
        )
    verdict, sentence = summarise(tuple(results), plan)
    fields = {
        "environment": "IcyLake",
        "settings": SETTINGS,
        "limit": CHANCE.limit,
        "epsilon": CHANCE.epsilon,
        "cost_discount": 1.0,
        "plan": plan,
        "evaluation_seed": 5,
        "results": tuple(results),
        "verdict": verdict,
        "sentence": sentence,
        "origin": {"run": "IcyLake-canary-1", "algorithm": "canary", "updates": 60, "earlier": 0},
        "versions": {"python": "3.11"},
        "time": "2026-01-31T14:25:30+01:00",
    }
    return to_dict(Certificate(**(fields | changes)))


FIXED = issue(Plan(episodes=1000, batch=200, early_stop=False, cost_bound=100.0), {0: 0.004})
ANYTIME = issue(
    Plan(episodes=2000, batch=250, statements=4, cost_bound=100.0),
    {0: 0.003, 1: 0.1, 9: 0.0, 10: 0.2},
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


def edited(
    certificate: dict[str, Any], path: tuple, value: Any, *, rehash: bool = False
) -> dict[str, Any]:
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
    digests = {0: f"{0:064x}", 1: f"{1:064x}"}
    assert compare(certificate, {"settings": SETTINGS, "algorithm": "canary"}, digests) == []


def test_the_verdicts_are_as_expected():
    assert FIXED["verdict"] == "SATISFIED"
    assert ANYTIME["verdict"] == "VIOLATED"
    assert [result["assessment"]["verdict"] for result in ANYTIME["results"]] == [
        "SATISFIED",
        "VIOLATED",
        "SATISFIED",
        "VIOLATED",
    ]


def test_the_headline_tells_the_trained_environment_from_the_changed_ones():
    plan = Plan(episodes=2000, batch=250, statements=4)
    shifted = issue(plan, {0: 0.0, 1: 0.001, 9: 0.0, 10: 0.2})
    assert shifted["verdict"] == "SATISFIED"
    assert shifted["sentence"] == (
        "With 95% confidence in all 4 statements together, the policies of all 2 seeds keep the "
        "limit in the environment they were trained in. Of 2 statements about changed settings, 1 "
        "keep the limit, 1 break it."
    )
    assert "in the environment they were trained in" in ANYTIME["sentence"]


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
    """Of these, the facts are compared with the run, the rest of the evidence is told by replaying
    it, and labels are documented as free text."""
    hidden = {
        path
        for path, value in leaves(FIXED)
        if not verify(edited(FIXED, path, another(value), rehash=True))
    }
    replayed = {("results", 0, "evidence", name) for name in ("return_mean", "length_mean")}
    replayed |= {("evaluation_seed",), ("plan", "deterministic"), ("plan", "batch")}
    compared = {
        ("environment",),
        ("cost_discount",),
        ("origin", "algorithm"),
        ("origin", "updates"),
    }
    compared |= {("settings", name) for name in SETTINGS} | {("results", 0, "seed")}
    compared |= {("results", 0, "evidence", "policy_sha256")}
    labels = {
        ("time",),
        ("versions", "python"),
        ("origin", "run"),
        ("origin", "earlier"),
        ("sha256",),
    }
    assert hidden == replayed | compared | labels


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
    "a giant number of episodes": ((*RESULT, "evidence", "costs", 0, 1), 10**12),
    "another order": ((*RESULT, "evidence", "order"), "1x0"),
    "a giant order": ((*RESULT, "evidence", "order"), "999999999999x0"),
    "an interruption": ((*RESULT, "evidence", "interrupted"), True),
    "true for a number": ((*RESULT, "assessment", "upper"), True),
    "a seed twice": ((*RESULT, "seed"), 1),
    "the own setting as a change": (("results", 2, "changes", "slip"), 1 / 3),
    "a switch as a change": (("results", 2, "changes"), {"wind": 1}),
    "a change for the nominal": ((*RESULT, "changes"), {"slip": 0.2}),
    "a field of its own": (("approved",), "by everybody"),
    "a number of its own": ((*RESULT, "assessment", "safety"), 1.0),
    "a label of its own": (("origin", "approved"), "yes"),
    "no seed": (("evaluation_seed",), "5"),
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


def test_without_results_of_the_unchanged_environment_there_is_no_verdict():
    """The forgery that once passed: every result called a shift to the value that the environment
    has anyway."""
    for nominal in (1 / 3, 1 / 3 + 1e-12, 0.2):
        forged = copy.deepcopy(ANYTIME)
        for result in forged["results"]:
            result["changes"] = {"slip": nominal}
        forged |= {
            "verdict": "SATISFIED",
            "sentence": "With 95% confidence, the policies of all 0 seeds keep the limit.",
        }
        assert verify(forged | {"sha256": content_hash(forged)})
    empty = ANYTIME | {"results": [], "verdict": "UNDECIDED"}
    assert verify(empty | {"sha256": content_hash(empty)})
    assert summarise((), Plan())[0] == "UNDECIDED"


def test_a_test_that_went_on_after_its_verdict_is_found_out():
    """Playing on from VIOLATED until it looks better: the order of the episodes tells."""
    plan = Plan(episodes=4000, batch=100, cost_bound=100.0)
    forged = issue(plan, {0: 0.0})
    bad, good = 12, 2988
    evidence = Evidence(
        policy_sha256="0" * 64, method="anytime", looks=30, interrupted=False,
        costs=((0.0, good), (6.0, bad)), order=f"{bad}x1 {good}x0", return_mean=0.5, length_mean=9.0,
    )  # fmt: skip
    result = Result(
        seed=0, changes={}, evidence=evidence, assessment=assess(evidence, plan, CHANCE)
    )
    assert result.assessment.verdict == "SATISFIED"
    verdict, sentence = summarise((result,), plan)
    forged = issue(plan, {0: 0.0}, results=(result,), verdict=verdict, sentence=sentence)
    assert verify(forged) == ["Seed 0: it went on after 100 episodes, when its verdict was clear."]


def test_changes_of_the_environment_that_were_accepted_are_part_of_it():
    origin = FIXED["origin"] | {"environment_changes": ["slip is 0.2 here and was 0.3"]}
    hidden = FIXED | {"origin": origin}
    hidden |= {"sha256": content_hash(hidden)}
    assert "recomputing it gives" in verify(hidden)[0]  # its sentence must say it as well
    said = "This is not the environment of training: slip is 0.2 here and was 0.3."
    told = hidden | {"sentence": f"{FIXED['sentence']} {said}"}
    told |= {"sha256": content_hash(told)}
    assert verify(told) == []
    assert verify(told | {"origin": FIXED["origin"]})
    assert (
        compare(told, {"environment_changes": ["slip is 0.2 here and was 0.3"]}, {0: f"{0:064x}"})
        == []
    )
    (alone,) = compare(told, {"environment_changes": []}, {0: f"{0:064x}"})
    assert "(slip is 0.2 here and was 0.3), the one here does not differ; check it with" in alone
    (alone,) = compare(FIXED, {"environment_changes": ["slip is 0.2 here"]}, {0: f"{0:064x}"})
    assert "is that of training, the one here differs from that (slip is 0.2 here)" in alone
    for nonsense in ("slip", [], [3], None):
        forged = FIXED | {"origin": FIXED["origin"] | {"environment_changes": nonsense}}
        assert verify(forged | {"sha256": content_hash(forged)})


def test_other_policies_and_facts_are_named():
    assert compare(FIXED, {}, {0: "f" * 64}) == [
        "The policy of seed 0 is not the one that was certified: its digest differs."
    ]
    assert "no policy of seed 1" in compare(ANYTIME, {}, {0: f"{0:064x}"})[0]
    right = {0: f"{0:064x}"}
    assert compare(FIXED, {"settings": SETTINGS | {"slip": 0.2}}, right) == [
        "The settings differ from the run's in slip."
    ]
    assert compare(FIXED, {"updates": 61}, right) == ["The updates is 60 here but 61 in the run."]


def test_what_is_no_certificate_is_refused_in_a_sentence():
    for nonsense in (
        {},
        {"format": 1},
        {"format": 2},
        {"format": 2, "results": 3},
        {**FIXED, "plan": {"confidence": "high"}},
    ):
        assert verify(nonsense)
    for path, _ in leaves(FIXED):
        verify(edited(FIXED, path, None, rehash=True))
        verify(edited(FIXED, path, [], rehash=True))
