"""Forged certificates: none passes what `--verify --replay` claims, but for labels that are
documented as free text.

Whoever forges knows the format, and recomputes everything that follows from what was changed:
bounds, verdict, sentence, hash. The random ones combine several changes; every field is also
changed alone, to every value that might stand there.
"""

import copy
import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from attacks.attack import Attack, at, leaves, put
from attacks.warm import warm
from canary.certification import order
from canary.certification.certificate import (
    Result,
    constraint_of,
    content_hash,
    methods_of,
    summarise,
)
from canary.certification.check import _compare, _policies, _replay
from canary.certification.plan import Plan
from canary.certification.run import Request, certify_run
from canary.certification.verdict import Evidence, assess
from canary.certification.verification import LABELS, verify
from canary.constraints import Chance, Constraint, CVaR, Mean
from canary.errors import CanaryError
from runs.untrained_runs import untrained_run

Certificate = dict[str, Any]


KINDS: dict[str, tuple[str, Constraint]] = {
    "chance": ("canary", Chance(limit=1.5, epsilon=0.1)),
    "mean": ("cpo", Mean(limit=1.5)),
    "cvar": ("cppo", CVaR(limit=4.0, epsilon=0.2)),
}


class Forgeries(Attack):
    """What all of them share: an honest certificate of two seeds and one shift, and the question
    whether a forgery passes."""

    what, all = "", 0

    def __init__(self, kind: str):
        self.name, self.tries = f"forged: {self.what}, {kind}", self.all
        self._algorithm, self._constraint = KINDS[kind]

    def prepare(self, folder: Path) -> None:
        self._resources = ExitStack()
        self._resources.enter_context(warm(self._algorithm))
        run = untrained_run(folder, algorithm=self._algorithm, constraint=self._constraint)
        request = Request(episodes=100, batch=50, evaluation_seed=3, shift=("slip=0.2",))
        self._honest = certify_run(run, request, quiet=True)
        self._policies = _policies(run, None, self._honest["origin"]["updates"])
        assert self._passes(self._honest)

    def close(self) -> None:
        self._resources.close()

    def _problem(self, forged: Certificate, what: str) -> str | None:
        forged["sha256"] = content_hash(forged)
        harmless = forged == self._honest or self._is_label(forged)
        return f"passed: {what}" if not harmless and self._passes(forged) else None

    def _passes(self, certificate: Certificate) -> bool:
        if verify(certificate) or _compare(certificate, self._policies):
            return False
        _, problems = _replay(certificate, self._policies, 1.0, lambda seed, episodes: None)
        return not problems

    def _is_label(self, forged: Certificate) -> bool:
        """Whether only free text differs."""
        found = copy.deepcopy(forged)
        for label in (*LABELS, "sha256"):
            path = tuple(label.split("."))
            put(found, path, at(self._honest, path))
        return found == self._honest


class EveryField(Forgeries):
    """Every field alone, and every value that might stand there."""

    what, all = "every field", 1300

    def prepare(self, folder: Path) -> None:
        super().prepare(folder)
        places = leaves(self._honest)
        self._edits = [(path, value) for path in places for value in others(at(self._honest, path))]
        assert len(self._edits) <= self.tries, len(self._edits)
        self.tries = len(self._edits)

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        path, value = self._edits[number]
        forged = copy.deepcopy(self._honest)
        put(forged, path, value)
        return self._problem(forged, f"{'.'.join(map(str, path))} = {value!r:.60}")


class RandomForgeries(Forgeries):
    """One to three changes of what matters, and all that follows from them recomputed."""

    what, all = "recomputed", 1000

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        forged, names = copy.deepcopy(self._honest), []
        for _ in range(int(random.integers(1, 4))):
            change = CHANGES[int(random.integers(len(CHANGES)))]
            change(forged, random)
            names.append(change.__name__)
        try:
            recompute(forged)
        except (CanaryError, ValueError, TypeError):
            return None  # it contradicts itself so much that nothing follows from it
        return self._problem(forged, ", ".join(names))


def recompute(forged: Certificate) -> None:
    """Bounds, verdicts and sentences from the costs, as an honest issuer would."""
    forged["plan"]["statements"] = len(forged["results"])
    plan = Plan(**forged["plan"])
    constraint = constraint_of(forged)
    results = []
    for stored in forged["results"]:
        entries = dict(stored["evidence"]) | {
            "costs": tuple(map(tuple, stored["evidence"]["costs"]))
        }
        evidence = Evidence(**entries)
        assessment = assess(evidence, plan, constraint)
        seed, changes = stored["seed"], stored["changes"]
        results.append(Result(seed=seed, changes=changes, evidence=evidence, assessment=assessment))
    forged["verdict"], forged["sentence"] = summarise(tuple(results), plan, constraint)
    forged["methods"] = methods_of(constraint.kind)
    forged["results"] = json.loads(json.dumps([asdict(result) for result in results]))


def _costs(evidence: Certificate) -> np.ndarray:
    values, counts = zip(*evidence["costs"], strict=True)
    return np.array(values)[order.decode(evidence["order"], counts)]


def _rewrite(evidence: Certificate, costs: np.ndarray, batch: int) -> None:
    values, places, counts = np.unique(costs, return_inverse=True, return_counts=True)
    evidence["costs"] = [
        [float(value), int(count)] for value, count in zip(values, counts, strict=True)
    ]
    evidence |= {"order": order.encode(places), "looks": -(-len(costs) // batch)}


def _some(forged: Certificate, random: np.random.Generator) -> Certificate:
    return forged["results"][int(random.integers(len(forged["results"])))]


def cheaper_episodes(forged: Certificate, random: np.random.Generator) -> None:
    evidence = _some(forged, random)["evidence"]
    costs = _costs(evidence)
    costs[random.choice(len(costs), int(random.integers(1, len(costs) + 1)), replace=False)] = (
        costs.min()
    )
    _rewrite(evidence, costs, forged["plan"]["batch"])


def no_costs_at_all(forged: Certificate, random: np.random.Generator) -> None:
    for result in forged["results"]:
        _rewrite(result["evidence"], 0 * _costs(result["evidence"]), forged["plan"]["batch"])


def other_order(forged: Certificate, random: np.random.Generator) -> None:
    evidence = _some(forged, random)["evidence"]
    _rewrite(evidence, random.permutation(_costs(evidence)), forged["plan"]["batch"])


def fewer_episodes(forged: Certificate, random: np.random.Generator) -> None:
    for result in forged["results"]:
        costs = _costs(result["evidence"])
        _rewrite(result["evidence"], costs[: max(1, len(costs) // 2)], forged["plan"]["batch"])


def without_a_seed(forged: Certificate, random: np.random.Generator) -> None:
    seed = _some(forged, random)["seed"]
    kept = [result for result in forged["results"] if result["seed"] != seed]
    forged["results"] = kept or forged["results"]


def without_the_shift(forged: Certificate, random: np.random.Generator) -> None:
    forged["results"] = [result for result in forged["results"] if not result["changes"]] or forged[
        "results"
    ]


def all_called_shifts(forged: Certificate, random: np.random.Generator) -> None:
    for result in forged["results"]:
        result["changes"] = {
            "slip": forged["settings"]["slip"] * float(random.choice([1.0, 1 + 1e-9, 0.5]))
        }


def shift_called_nominal(forged: Certificate, random: np.random.Generator) -> None:
    shifted = [result for result in forged["results"] if result["changes"]]
    for result in shifted:
        result["changes"] = {}
    forged["results"] = shifted or forged["results"]


def evidence_of_another(forged: Certificate, random: np.random.Generator) -> None:
    one, other = _some(forged, random), _some(forged, random)
    digest = one["evidence"]["policy_sha256"]
    one["evidence"] = copy.deepcopy(other["evidence"]) | {"policy_sha256": digest}


def other_plan(forged: Certificate, random: np.random.Generator) -> None:
    choices = {
        "confidence": [0.5, 0.99], "episodes": [50, 200], "early_stop": [False], "batch": [51, 99],
        "cost_bound": [None, 12.0, 1000.0], "deterministic": [True],
    }  # fmt: skip
    name = list(choices)[int(random.integers(len(choices)))]
    forged["plan"][name] = choices[name][int(random.integers(len(choices[name])))]


def other_promise(forged: Certificate, random: np.random.Generator) -> None:
    name = ["limit", "epsilon"][int(random.integers(2))]
    forged[name] = forged[name] * float(random.choice([0.5, 1.5, 3.0]))


def other_seed(forged: Certificate, random: np.random.Generator) -> None:
    forged["evaluation_seed"] = int(random.integers(2**31))


def other_means(forged: Certificate, random: np.random.Generator) -> None:
    evidence = _some(forged, random)["evidence"]
    name = ["return_mean", "length_mean"][int(random.integers(2))]
    evidence[name] = evidence[name] + float(random.normal())


def other_policy(forged: Certificate, random: np.random.Generator) -> None:
    digests = [result["evidence"]["policy_sha256"] for result in forged["results"]]
    _some(forged, random)["evidence"]["policy_sha256"] = digests[int(random.integers(len(digests)))]


def other_environment(forged: Certificate, random: np.random.Generator) -> None:
    forged["settings"]["slip"] = float(random.uniform(0, 0.3))


def older_format(forged: Certificate, random: np.random.Generator) -> None:
    forged["format"] = int(random.integers(2, 4))
    forged.pop("constraint", None)


def other_kind(forged: Certificate, random: np.random.Generator) -> None:
    """A promise that is easier to keep, about the same episodes."""
    forged["constraint"] = str(random.choice(["chance", "mean", "cvar"]))
    forged["epsilon"] = (
        1.0 if forged["constraint"] == "mean" else float(random.choice([0.1, 0.5, 0.9]))
    )


def other_largest_cost(forged: Certificate, random: np.random.Generator) -> None:
    """The bounds on mean and CVaR shrink with it: the largest cost that was seen would do
    wonders."""
    seen = max(cost for result in forged["results"] for cost, _ in result["evidence"]["costs"])
    forged["plan"]["cost_bound"] = float(random.choice([seen, seen + 1, 1e9]))


def costs_just_below(forged: Certificate, random: np.random.Generator) -> None:
    """Not free, but so that the promise is just kept."""
    for result in forged["results"]:
        costs = _costs(result["evidence"])
        _rewrite(result["evidence"], np.minimum(costs, forged["limit"]), forged["plan"]["batch"])


def most_expensive_last(forged: Certificate, random: np.random.Generator) -> None:
    """Betting looks at the order: the bets are placed by what came before."""
    evidence = _some(forged, random)["evidence"]
    _rewrite(evidence, np.sort(_costs(evidence)), forged["plan"]["batch"])


CHANGES: list[Callable[[Certificate, np.random.Generator], None]] = [
    cheaper_episodes, no_costs_at_all, other_order, fewer_episodes, without_a_seed, without_the_shift, all_called_shifts,
    shift_called_nominal, evidence_of_another, other_plan, other_promise, other_seed, other_means, other_policy,
    other_environment, older_format, other_kind, other_largest_cost, costs_just_below, most_expensive_last,
]  # fmt: skip


def others(value: Any) -> list[Any]:
    """Other values that might stand there."""
    match value:
        case bool():
            return [not value, int(value), None]
        case int():
            return [value + 1, 0, -value - 1, value * 2, float(value), True, None]
        case float():
            return [value * 1.001, value - 1, 0.0, -value, value * 10, int(value), None]
        case str():
            return [value + "x", "", "SATISFIED", value[::-1], 7, None]
        case None:
            return [0, 1.5, "none"]
    return [None, 0, {"slip": 0.2}]


ATTACKS = [forgery(kind) for kind in KINDS for forgery in (EveryField, RandomForgeries)]
