"""Forged certificates: none passes what `--verify --replay` claims, but for labels that are documented as free text."""

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from attacks.attack import at, leaves, put
from canary.certification.certificate import Result, content_hash, summarise
from canary.certification.check import _compare, _policies, _replay
from canary.certification.plan import Plan
from canary.certification.run import Request, certify_run
from canary.certification.verdict import Evidence, assess
from canary.certification.verification import LABELS, verify
from canary.constraints import Chance
from runs.untrained_runs import untrained_run


class Forgeries:
    """Changes of a certificate by someone who can recompute its hash, and also its bounds and verdict."""

    name, tries = "forged certificates", 1000

    def prepare(self, folder: Path) -> None:
        run = untrained_run(folder)
        request = Request(episodes=100, batch=50, evaluation_seed=3, shift=("slip=0.2",))
        self._honest = certify_run(run, request, quiet=True)
        self._policies = _policies(run, None)
        self._leaves = leaves(self._honest)

    def attempt(self, number: int, random: np.random.Generator) -> str | None:
        forged = copy.deepcopy(self._honest)
        if number % 4 == 0:
            what = self._invent_costs(forged, random)
        else:
            path = self._leaves[int(random.integers(len(self._leaves)))]
            value = another(at(forged, path), random)
            put(forged, path, value)
            what = f"{'.'.join(map(str, path))} = {value!r:.60}"
        forged["sha256"] = content_hash(forged)
        if forged == self._honest or self._is_label(forged):
            return None
        if verify(forged) or _compare(forged, self._policies):
            return None
        _, problems = _replay(forged, self._policies, 1.0, lambda seed, episodes: None)
        return None if problems else f"passed: {what}"

    def _is_label(self, forged: dict[str, Any]) -> bool:
        """Whether only free text differs."""
        found = copy.deepcopy(forged)
        for label in (*LABELS, "sha256"):
            path = tuple(label.split("."))
            put(found, path, at(self._honest, path))
        return found == self._honest

    def _invent_costs(self, forged: dict[str, Any], random: np.random.Generator) -> str:
        """Fewer violations in one result, and everything that follows from the costs recomputed."""
        plan = Plan(**forged["plan"])
        constraint = Chance(limit=forged["limit"], epsilon=forged["epsilon"])
        chosen = int(random.integers(len(forged["results"])))
        results = []
        for index, stored in enumerate(forged["results"]):
            entries = dict(stored["evidence"]) | {"costs": tuple(map(tuple, stored["evidence"]["costs"]))}
            if index == chosen:
                episodes = sum(count for _, count in entries["costs"])
                entries |= {"costs": ((0.0, episodes),), "order": f"{episodes}x0"}
            evidence = Evidence(**entries)
            assessment = assess(evidence, plan, constraint)
            seed, changes = stored["seed"], stored["changes"]
            results.append(Result(seed=seed, changes=changes, evidence=evidence, assessment=assessment))
        forged["verdict"], forged["sentence"] = summarise(tuple(results), plan)
        forged["results"] = json.loads(json.dumps([asdict(result) for result in results]))
        return f"costs of result {chosen}"


def another(value: Any, random: np.random.Generator) -> Any:
    """Another value that might stand there."""
    match value:
        case bool():
            return not value
        case int():
            return [value + 1, 0, -value, value * 2, float(value), True, None][int(random.integers(7))]
        case float():
            return [value * 1.001, value - 1, 0.0, -value, value * 10, int(value), None][
                int(random.integers(7))
            ]
        case str():
            return [value + "x", "", "SATISFIED", value[::-1], 7, None][int(random.integers(6))]
        case None:
            return [0, 1.5, "none"][int(random.integers(3))]
    return [None, 0, {"slip": 0.2}][int(random.integers(3))]


ATTACKS = [Forgeries()]
