"""`canary certify --verify`: what can be shown about a certificate, in three steps, and what that
leaves open.

    consistent   what it says follows from what it contains
    belongs      the policies, the environment and its settings are those of a run that is at hand
    replayed     the same episodes, played again, had the same costs: all of them, or a random share

Each step says in words what it has shown and what it has not. A signature shows who stands behind
the words.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from canary.certification.certificate import commitment, constraint_of
from canary.certification.certify import Subject, make_player, shift_grid
from canary.certification.on_disk import read, run_around, versions
from canary.certification.plan import Plan
from canary.certification.recomputation import describe
from canary.certification.replay import Replayed, choose, replay, replay_words
from canary.certification.run import episode_key, largest_cost
from canary.certification.signature import check as check_signature
from canary.certification.verification import CHANGES, compare, unreadable, verify
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.identity import environment_settings
from canary.runs.environment import open_config
from canary.runs.policies import FrozenPolicies, load_policies
from canary.runs.stored_states import stored_updates

Report = Callable[[int, int], None]
CONSISTENT = (
    "It is consistent in itself: every bound, verdict and sentence follows from the costs it lists."
)
SAID = ("verdict", "sentence", "environment", "constraint", "limit", "epsilon", "time")


def verify_file(
    path: Path,
    *,
    run: Path | None = None,
    environment: Environment | None = None,
    replay: float | bool = False,
    key: Any = None,
    report: Report = lambda seed, episodes: None,
) -> dict[str, Any]:
    """Check a certificate (its JSON, its page, or a directory with both) by itself, against its
    run, and by replaying it.

    The run is the given one, or that in whose directory the certificate lies. `replay` plays a
    share of the episodes again (True: all) and `report` hears of each seed's. `key` is the public
    key that it should be signed with.
    """
    found = read(path)
    path, certificate = found["path"], found["certificate"]
    if (
        reason := unreadable(certificate)
    ) is not None:  # neither valid nor not: it is not looked at
        raise CanaryError(f"{path} was not checked. {reason}")
    unsigned, who = check_signature(certificate, key)
    around, incomplete = run_around(path)
    run = around if run is None else run
    if run is None and replay:
        raise CanaryError(
            "Replaying a certificate needs the run that it is about: canary certify RUN --verify "
            "FILE. " + " ".join(incomplete)
        )
    notes = found["notes"] + (incomplete if run is None else [])
    findings = Findings(problems=found["problems"] + verify(certificate) + unsigned, notes=notes)
    is_compared = run is not None and not findings.problems
    if not findings.problems:
        findings.reach("consistent", CONSISTENT)
    if who is not None:
        findings.shown.append(f"The holder of the key {who} signed exactly this text.")
    if run is not None and is_compared:
        policies = _policies(run, environment, certificate["origin"]["updates"])
        _check_run(findings, certificate, policies, run.name)
        if replay and not findings.problems:
            _check_replay(findings, certificate, policies, float(replay), report)
    hidden = _left_open(findings, is_compared, float(replay)) + _never_shown(certificate, who, key)
    said = {name: ({"constraint": "chance"} | certificate).get(name) for name in SAID}
    return {
        "path": str(path), "valid": not findings.problems, **vars(findings),
        "not_shown": hidden, "signed_by": who, **said,
    }  # fmt: skip


@dataclass
class Findings:
    """What the steps have found so far."""

    problems: list[str]
    notes: list[str]
    level: str = "nothing"
    shown: list[str] = field(default_factory=list)

    def reach(self, level: str, *words: str) -> None:
        self.level = level
        self.shown += words


def _check_run(
    findings: Findings, certificate: dict[str, Any], policies: FrozenPolicies, name: str
) -> None:
    findings.problems += _compare(certificate, policies)
    findings.notes += _notes(certificate, policies)
    if not findings.problems:
        findings.reach(
            "belongs",
            f"It belongs to {name}: the digests of its policies, the environment and its settings "
            "agree.",
        )


def _check_replay(
    findings: Findings,
    certificate: dict[str, Any],
    policies: FrozenPolicies,
    share: float,
    report: Report,
) -> None:
    words, wrong = _replay(certificate, policies, share, report)
    findings.problems += wrong
    findings.reach(findings.level if wrong else "replayed", *words)


def _left_open(findings: Findings, is_compared: bool, share: float) -> list[str]:
    """What another step, or all episodes instead of a share, would show."""
    hidden = []
    if not share or findings.problems:
        hidden.append("Whether these episodes were ever played: --replay plays them again.")
    elif share < 1:
        hidden.append("Mean return and mean length, which only a full --replay gives.")
    if not is_compared:
        hidden.append(
            "Whether it is about a policy that you have: give its run, canary certify RUN --verify "
            "FILE."
        )
    return hidden


def _never_shown(certificate: dict[str, Any], who: str | None, key: Any) -> list[str]:
    """What no check of this certificate can show."""
    hidden = [
        "Whether it was the first try: whoever certifies often enough, or seeks a lucky seed, will "
        "find one."
    ]
    if certificate.get("format") == 2:
        hidden.append(
            "Whether the plan is the one it was played by: from format 3 on the episodes depend on "
            "it."
        )
    plan = certificate.get("plan")
    if isinstance(plan, dict) and isinstance(bound := plan.get("cost_bound"), int | float):
        hidden.append(
            f"That no episode can cost more than {bound:g}, on which the bounds on mean and CVaR "
            "rest."
        )
    if who is None:
        hidden.append(
            "Who issued it, when, and with which versions: these are labels; --sign and --key bind "
            "them."
        )
    elif key is None:
        hidden.append("Whose key that is: --key PUB compares it with one that you trust.")
    return hidden


def _policies(run: Path, environment: Environment | None, updates: Any) -> FrozenPolicies:
    """Those that a certificate is about, if the run still has the state; else the newest, which
    will differ."""
    config = open_config(run, environment, accept_change=True)
    has_it = type(updates) is int and updates in stored_updates(run)
    return load_policies(config, run, updates * config.training.batch if has_it else None)


def _compare(certificate: dict[str, Any], policies: FrozenPolicies) -> list[str]:
    config = policies.config
    facts = {
        "environment": config.environment_name,
        "settings": environment_settings(config.environment),
        "cost_discount": policies.account.cost_discount,
        "algorithm": config.algorithm_name,
        "updates": policies.iteration,
        CHANGES: list(config.environment_changes),
    }
    problems = compare(
        certificate, facts, {seed: policies.identity(seed).sha256 for seed in config.training.seeds}
    )
    known = largest_cost([({}, config.environment)])
    bound, changed = (
        certificate["plan"]["cost_bound"],
        any(r["changes"] for r in certificate["results"]),
    )
    if known is not None and (bound is None or bound < known or (bound > known and not changed)):
        problems.append(
            f"The largest possible cost is {bound!r} here but {known!r} in the environment."
        )
    return problems


def _notes(certificate: dict[str, Any], policies: FrozenPolicies) -> list[str]:
    """What is no fault of a certificate but should be known to whoever relies on it."""
    notes, constraint = list(policies.notes), policies.config.constraint
    about = constraint_of(certificate)
    if about != constraint:
        notes.append(f"It is about {about.text}; the run was trained for {constraint.text}.")
    left = set(policies.config.training.seeds) - {
        result["seed"] for result in certificate["results"]
    }
    if left:
        notes.append(f"It says nothing about the run's seeds {', '.join(map(str, sorted(left)))}.")
    return notes


def _replay(
    certificate: dict[str, Any], policies: FrozenPolicies, share: float, report: Report
) -> tuple[list[str], list[str]]:
    """Play a share of every result's episodes again; sentences about what came out, and about what
    is wrong."""
    random, players, problems = np.random.default_rng(secrets.randbits(128)), {}, []
    plan, rows = Plan(**certificate["plan"]), []
    constraint = constraint_of(certificate)
    found: list[Replayed] = []
    decided = _decided(certificate)
    for result in certificate["results"]:
        changes, seed, evidence = result["changes"], result["seed"], result["evidence"]
        rows += [changes] if changes not in rows else []
        row, episodes = rows.index(changes), sum(count for _, count in evidence["costs"])
        if episodes == 0:
            continue
        environment = policies.config.environment
        if changes:
            ((_, environment),) = shift_grid(
                environment, {name: [value] for name, value in changes.items()}
            )
        subject = Subject(environment, policies.account, constraint)
        again = replay(
            subject, *policies.of_seed(seed), evidence, plan,
            key=episode_key(certificate["evaluation_seed"], seed, row, decided),
            chosen=choose(episodes, share, random),
            player=players.setdefault(row, make_player(subject, plan)),
        )  # fmt: skip
        report(seed, again.played)
        found.append(again)
        if again.differing or again.same_means is False:
            what = (
                f"{again.differing:,} had other costs"
                if again.differing
                else "their mean return or length differs"
            )
            problems.append(
                f"{describe(seed, changes)}: of {again.played:,} episodes played again, {what}."
            )
    if problems and certificate["versions"] != versions():
        problems.append(
            "It was made with other versions than those here, which may round differently: use the "
            "same ones."
        )
    return replay_words(found), problems


def _decided(certificate: dict[str, Any]) -> tuple[int, ...]:
    """What the episodes were drawn from beside their numbers: all that was decided before the first
    one."""
    if certificate["format"] == 2:
        return ()
    statements = [(result["changes"], result["seed"]) for result in certificate["results"]]
    terms = {
        name: certificate[name]
        for name in ("constraint", "limit", "epsilon")
        if name in certificate
    }
    return commitment(certificate["plan"], terms, statements)
