"""Certificates of runs: play fresh episodes of the frozen policies, write certificate.json and
certificate.html, check them.

Episode j of seed i in row r of the shift grid (row 0: nothing changed) has the key
fold_in(fold_in(fold_in(fold_in(key(evaluation seed), i), stream), r), j), so any certificate can be replayed.
"""

import contextlib
import importlib.metadata
import platform
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import jax

from canary.certification.certificate import Certificate, Result, summarise, to_dict, verify
from canary.certification.certify import (
    Subject,
    certify,
    environment_settings,
    make_player,
    policy_hash,
    shift_grid,
)
from canary.certification.plan import Plan, complete
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.experiments import storage
from canary.experiments.certificate_page import render_page
from canary.experiments.certificate_table import CertificationBar
from canary.experiments.config import config_from_dict
from canary.experiments.frozen import FrozenPolicies, load_policies
from canary.experiments.settings import nearest
from canary.types import Chance

STREAM = 0x63657274  # "cert": neither training nor evaluation uses these keys
JSON_NAME, PAGE_NAME = "certificate.json", "certificate.html"

# The largest cost that one step can have; elsewhere the caller must say it, or means and CVaR get no bound.
LARGEST_STEP_COST = {"IcyLake": 1.0, "PointGoal": 1.0, "PointGoal2500": 1.0, "EcoAnt": 4.0}

Rows = list[tuple[dict[str, int | float], Environment]]
"""What was changed, and the environment so changed; the first row is the environment as it was trained in."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What shall be certified, and how; the constraint is the run's own unless said otherwise."""

    confidence: float = 0.95
    episodes: int | None = None
    """Episodes per policy, the most if it may stop early; None plans them from epsilon and the confidence."""
    early_stop: bool = True
    seeds: tuple[int, ...] | None = None
    """Which seeds of the run; None: all. Fewer seeds, chosen beforehand, need less of a correction."""
    shift: tuple[str, ...] = ()
    """Changed dynamics such as `slip=0.1,0.2`; several are combined into a grid."""
    limit: float | None = None
    epsilon: float | None = None
    deterministic: bool = False
    evaluation_seed: int | None = None
    """None draws a new one, so that nobody can train, or choose, for known episodes."""
    largest_step_cost: float | None = None
    """The largest cost one step can have: gives bounds on mean and CVaR for an environment of your own."""
    batch: int = 256


def certify_run(
    run: Path,
    request: Request | None = None,
    *,
    environment: Environment | None = None,
    out: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Certify the policies of a run; writes certificate.json and certificate.html into `out`, or into the
    run.
    """
    request = request or Request()
    config = config_from_dict(storage.read_json(run / "config.json"), environment)
    policies = load_policies(config, run)
    seeds = config.training.seeds if request.seeds is None else request.seeds
    if not seeds or len(set(seeds)) < len(seeds):
        raise CanaryError(f"Certify one or more different seeds of the run, not {list(seeds)}.")
    for seed in seeds:
        policies.of_seed(seed)
    rows = _rows(config.environment, request.shift)
    constraint = Chance(
        limit=config.constraint.limit if request.limit is None else request.limit,
        epsilon=config.constraint.epsilon if request.epsilon is None else request.epsilon,
    )
    plan = complete(_plan(request, policies, rows, len(seeds)), constraint)
    drawn = secrets.randbits(31) if request.evaluation_seed is None else request.evaluation_seed
    with CertificationBar(constraint, plan, quiet=quiet) as bar:
        for note in policies.notes:
            bar.message(note)
        results = _results(policies, (seeds, rows), constraint, (plan, drawn), bar)
    verdict, sentence = summarise(results, plan)
    certificate = to_dict(
        Certificate(
            environment=config.environment_name,
            settings=environment_settings(config.environment),
            limit=constraint.limit,
            epsilon=constraint.epsilon,
            cost_discount=policies.augmentation.discount,
            plan=plan,
            evaluation_seed=drawn,
            results=results,
            verdict=verdict,
            sentence=sentence,
            origin={"run": run.name, "algorithm": config.algorithm_name, "updates": policies.iteration},
            versions=_versions(),
            time=datetime.now().astimezone().isoformat(timespec="seconds"),
        )
    )
    save(certificate, out or run)
    return certificate


def save(certificate: dict[str, Any], folder: Path) -> list[Path]:
    """Write the certificate and its page; returns their paths."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CanaryError(f"Cannot write into {folder} ({error.strerror}); choose another place.") from error
    storage.write_json(folder / JSON_NAME, certificate)
    storage.write_atomically(folder / PAGE_NAME, render_page(certificate).encode())
    return [folder / JSON_NAME, folder / PAGE_NAME]


def verify_file(
    path: Path,
    *,
    run: Path | None = None,
    environment: Environment | None = None,
    replay: bool = False,
    report: Callable[[int], None] = lambda episodes: None,
) -> dict[str, Any]:
    """Check a certificate: its hash, bounds and verdict; against its run, where there is one; and by
    replaying it.

    The run is the given one, or that in whose directory the certificate lies. `replay` plays all episodes
    again and compares their costs, which is exact on the same kind of machine with the same versions;
    `report` hears of each batch.
    """
    path = path / JSON_NAME if path.is_dir() else path
    certificate = storage.read_json(path)
    run = path.parent if run is None and (path.parent / "config.json").is_file() else run
    checked = ["hash of the content", "bounds and verdicts, recomputed from the listed costs"]
    if run is None:
        if replay:
            raise CanaryError("Replaying a certificate needs the run that it is about; say which.")
        problems = verify(certificate)
    else:
        config = config_from_dict(storage.read_json(run / "config.json"), environment)
        policies = load_policies(config, run)
        hashes = {seed: policy_hash(*policies.of_seed(seed)) for seed in config.training.seeds}
        problems = verify(certificate, hashes, environment_settings(config.environment))
        facts = {"environment": config.environment_name, "cost_discount": policies.augmentation.discount}
        for name, value in facts.items():
            if certificate.get(name) != value:
                problems.append(f"The {name} is {certificate.get(name)!r} here but {value!r} in the run.")
        checked += [f"policies and environment of {run.name}"]
        if replay and not problems:
            problems += _replay(certificate, policies, report)
            checked += ["every episode, played again"]
    keys = ("verdict", "sentence", "environment", "limit", "epsilon", "time")
    said = {key: certificate.get(key) for key in keys}
    return {"path": str(path), "valid": not problems, "problems": problems, "checked": checked, **said}


def _rows(environment: Environment, shift: tuple[str, ...]) -> Rows:
    """The environment itself, then those of the grid."""
    values: dict[str, list[int | float]] = {}
    for item in shift:
        name, equals, texts = item.partition("=")
        try:
            numbers = [_number(text) for text in texts.split(",") if text.strip()]
        except ValueError:
            numbers = []
        if not equals or not numbers:
            raise CanaryError(
                f"--shift expects SETTING=NUMBER,NUMBER,..., for example slip=0.1,0.2, not {item!r}."
            )
        settings = environment_settings(environment)
        if name.strip() not in settings:
            raise CanaryError(
                f"The environment has no setting {name.strip()!r}{nearest(name.strip(), settings)}"
            )
        values[name.strip()] = numbers
    return [({}, environment), *(shift_grid(environment, values) if values else [])]


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _plan(request: Request, policies: FrozenPolicies, rows: Rows, seeds: int) -> Plan:
    step = request.largest_step_cost
    if step is None:
        step = LARGEST_STEP_COST.get(policies.config.environment_name)
    horizon = max(environment.horizon for _, environment in rows)
    return Plan(
        confidence=request.confidence,
        statements=seeds * len(rows),
        episodes=request.episodes,
        early_stop=request.early_stop,
        batch=request.batch if request.episodes is None else min(request.batch, request.episodes),
        cost_bound=None if step is None else step * horizon,
        deterministic=request.deterministic,
    )


def _results(
    policies: FrozenPolicies,
    what: tuple[tuple[int, ...], Rows],
    constraint: Chance,
    how: tuple[Plan, int],
    bar: CertificationBar,
) -> tuple[Result, ...]:
    """One result per row and seed. After Ctrl-C the remaining ones get no episode, and hence no verdict."""
    (seeds, rows), (plan, evaluation_seed), results, stopped = what, how, [], False
    for index, (changes, environment) in enumerate(rows):
        subject = Subject(environment, policies.augmentation, constraint)
        player = make_player(subject, plan)
        for seed in seeds:
            key = _key(evaluation_seed, seed, index)
            evidence, assessment = certify(
                subject,
                *policies.of_seed(seed),
                plan,
                key=key,
                progress=bar.start(seed, changes),
                player=_refuse if stopped else player,
            )
            stopped = stopped or evidence.interrupted
            results.append(Result(seed=seed, changes=changes, evidence=evidence, assessment=assessment))
    return tuple(results)


def _key(evaluation_seed: int, seed: int, row: int) -> Any:
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(evaluation_seed), seed), STREAM)
    return jax.random.fold_in(key, row)


def _refuse(*_: Any) -> Any:
    raise KeyboardInterrupt


def _replay(
    certificate: dict[str, Any], policies: FrozenPolicies, report: Callable[[int], None]
) -> list[str]:
    """Play as many episodes as were counted, and compare their costs."""
    problems, rows, players = [], {}, {}
    plan = Plan(**certificate["plan"])
    constraint = Chance(limit=certificate["limit"], epsilon=certificate["epsilon"])
    for result in certificate["results"]:
        changes, seed, evidence = result["changes"], result["seed"], result["evidence"]
        row = rows.setdefault(tuple(changes.items()), len(rows))
        episodes = sum(count for _, count in evidence["costs"])
        if episodes == 0:
            continue
        environment = policies.config.environment
        if changes:
            ((_, environment),) = shift_grid(environment, {name: [value] for name, value in changes.items()})
        subject = Subject(environment, policies.augmentation, constraint)
        players.setdefault(row, make_player(subject, plan))
        again, _ = certify(
            subject,
            *policies.of_seed(seed),
            replace(plan, episodes=episodes, early_stop=False),
            key=_key(certificate["evaluation_seed"], seed, row),
            progress=lambda played, _: report(played),
            player=players[row],
        )
        means = (again.return_mean, again.length_mean) == (evidence["return_mean"], evidence["length_mean"])
        if [list(pair) for pair in again.costs] != evidence["costs"] or not means:
            name = ", ".join([f"seed {seed}", *(f"{key} = {value:g}" for key, value in changes.items())])
            problems.append(f"Playing the {episodes:,} episodes of {name} again gives other results.")
    return problems


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for distribution in ("canary-rl", "jax", "jaxlib", "numpy", "scipy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[distribution.removesuffix("-rl")] = importlib.metadata.version(distribution)
    return versions
