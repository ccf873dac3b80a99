"""Certify a run: play fresh episodes of its frozen policies, write certificate.json and
certificate.html.

The key of episode j of seed i in row r of the shift grid (row 0: nothing changed) is
key(evaluation seed) with i, a stream of its own, the four numbers of the `commitment`, r and j
folded in. So a certificate can be replayed, and only with the plan that it was played by.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import jax

from canary.certification import signature
from canary.certification.certificate import (
    Certificate,
    PolicyResult,
    commitment,
    results_of,
    summarise,
    terms,
    to_dict,
)
from canary.certification.certify import (
    Progress,
    Subject,
    certify_each,
    make_player,
    shift_grid,
)
from canary.certification.page import render_page
from canary.certification.plan import Plan, check_confidence, complete
from canary.config.config import RunConfig
from canary.config.run_config import complete as complete_constraint
from canary.constraints import Constraint, Joint, Mean, parts_of
from canary.environments.protocol import Environment, close, largest_step_cost
from canary.errors import CanaryError
from canary.identity import environment_settings
from canary.runs import files
from canary.runs.directory import versions
from canary.runs.environment import MAY_ACCEPT, is_ours, open_config, source_file_digest
from canary.runs.manifest import read_config
from canary.runs.policies import FrozenPolicies, episode_changes, load_policies
from canary.terminal.certificate_table import CertificationBar
from canary.values import Amount, Count, Whole, convert_fields

STREAM = 0x63657274  # "cert": neither training nor evaluation uses these keys
JSON_NAME, PAGE_NAME = "certificate.json", "certificate.html"

Rows = list[tuple[dict[str, int | float], Environment]]
"""What was changed, and the environment with that change; the first row changes nothing."""


@dataclass(frozen=True, kw_only=True)
class CertificateRequest:
    """What to certify, and how. The constraint is the run's own unless given."""

    confidence: float = 0.95
    episodes: Count | None = None
    """Episodes per policy, at most if it may stop early; None plans them."""
    early_stop: bool = True
    step: Whole | None = None
    """The policies after so many environment steps; None: the newest."""
    seeds: tuple[Whole, ...] | None = None
    """Which seeds of the run; None: all. Fewer seeds, chosen beforehand, need less correction."""
    shift: tuple[str, ...] = ()
    """Changed dynamics such as `slip=0.1,0.2`; several form a grid."""
    limit: float | tuple[float, ...] | None = None
    """With several costs, here and in epsilon, one for each that has one."""
    epsilon: float | tuple[float, ...] | None = None
    deterministic: bool = False
    evaluation_seed: Whole | None = None
    """None draws a new one, so that nobody can train, or choose, for known episodes."""
    largest_step_cost: Amount | None = None
    """The largest cost of one step: gives bounds on mean and CVaR if the environment states none."""
    batch: Count = 256
    sign: Any = None
    """A private Ed25519 key, or the path of its file."""

    def __post_init__(self):
        convert_fields(self)
        check_confidence(self.confidence)


def certify_run(
    run: Path,
    request: CertificateRequest | None = None,
    *,
    environment: Environment | None = None,
    accept_change: bool = False,
    out: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Certify the policies of a run; writes certificate.json and .html into `out`, or the run."""
    request, folder = request or CertificateRequest(), out or run
    key = None if request.sign is None else signature.private_key(request.sign)
    config = open_config(run, environment, accept_change=accept_change)
    policies = load_policies(config, run, request.step)
    seeds = _seeds(request, policies)
    rows = environment_rows(config.environment, request.shift)
    constraint = _constraint(request, config.constraint)
    plan = complete(_plan(request, rows, len(seeds), len(parts_of(constraint))), constraint)
    evaluation_seed = request.evaluation_seed
    evaluation_seed = secrets.randbits(31) if evaluation_seed is None else evaluation_seed
    files.make_folder(folder)
    files.check_writable(folder)  # now, rather than after all episodes were played
    with CertificationBar(constraint, plan, quiet=quiet) as bar:
        for note in policies.notes:
            bar.message(note)
        check, changes = check_environment(run, config)
        if changes and not accept_change:
            raise CanaryError(
                f"The environment is not the one that {run} was trained on: {'; '.join(changes)}. "
                f"{MAY_ACCEPT}"
            )
        results = play_statements(
            policies, seeds, rows, constraint, plan, evaluation_seed, bar.start
        )
    verdict, sentence = summarise(results, plan, constraint, changes)
    certificate = to_dict(
        Certificate(
            **about(policies),
            **terms(constraint),
            plan=plan,
            evaluation_seed=evaluation_seed,
            results=results,
            verdict=verdict,
            sentence=sentence,
            environment_check=check,
            origin=_origin(run, folder, policies, changes),
            versions=versions(),
            time=datetime.now().astimezone().isoformat(timespec="seconds"),
        )
    )
    certificate = certificate if key is None else signature.sign(certificate, key)
    kept = save(certificate, folder)
    if kept is not None:
        bar.message(f"The earlier certificate is kept as {kept.name}.")
    return certificate


def about(policies: FrozenPolicies) -> dict[str, Any]:
    """The environment that policies are certified in."""
    return {
        "environment": policies.config.environment_name,
        "settings": environment_settings(policies.config.environment),
        "cost_discount": float(policies.account.cost_discount),
    }


def _origin(
    run: Path, folder: Path, policies: FrozenPolicies, changes: tuple[str, ...]
) -> dict[str, Any]:
    origin = {
        "run": run.name,
        "algorithm": policies.config.algorithm_name,
        "updates": policies.iteration,
        "earlier": len(_certificates(folder)),
    }
    return origin | ({"environment_changes": list(changes)} if changes else {})


def check_environment(run: Path, config: RunConfig) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a certificate says about whether the environment is that of training, and how it
    differs: whole episodes of the trained policies are played again."""
    environment, changes = config.environment, config.environment_changes
    digest = None if is_ours(environment) else source_file_digest(environment)
    if changes:
        sentence = "It differs from that of training; the change was accepted."
    elif is_ours(environment):
        sentence = "It is one of canary's own, with the settings of training."
    elif (found := episode_changes(run, config)) is None:
        sentence = (
            "It could not be compared with that of training: it has randomness of its own, or "
            "training did not end, or ran on another machine or version of JAX."
        )
        return {"compared": False, "sentence": sentence, "file_sha256": digest}, ()
    elif found:
        sentence, changes = "It differs from that of training.", tuple(found)
    else:
        sentence = "Whole episodes of the trained policies came out as they did after training."
        if digest != read_config(run)["environment"].get("file_sha256"):
            sentence += " The file that defines it has changed since."
    return {"compared": True, "sentence": sentence, "file_sha256": digest}, changes


def _constraint(request: CertificateRequest, trained: Constraint) -> Constraint:
    """The run's own, with the numbers that were asked for."""
    asked: dict[str, Any] = {"limit": request.limit, "epsilon": request.epsilon}
    if isinstance(trained, Joint):
        return complete_constraint(asked, trained, "the run")
    if isinstance(trained, Mean) and request.epsilon is not None:
        raise CanaryError(f"The run is about {trained.text}, which has no epsilon; leave it out.")
    said: dict[str, Any] = {name: float(each) for name, each in asked.items() if each is not None}
    return replace(trained, **said)


def _seeds(request: CertificateRequest, policies: FrozenPolicies) -> tuple[int, ...]:
    seeds = policies.config.training.seeds if request.seeds is None else request.seeds
    if not seeds or len(set(seeds)) < len(seeds):
        raise CanaryError(f"Certify one or more different seeds of the run, not {list(seeds)}.")
    for seed in seeds:  # refuse unknown and non-finite ones before anything is played
        policies.of_seed(seed)
    return tuple(seeds)


def environment_rows(environment: Environment, shift: tuple[str, ...]) -> Rows:
    """The environment itself, then those of the shift grid."""
    values: dict[str, list[int | float]] = {}
    for item in shift:
        name, _, texts = (part.strip() for part in item.partition("="))
        try:
            values[name] = [_number(text) for text in texts.split(",") if text.strip()]
        except ValueError:
            raise CanaryError(
                "--shift expects SETTING=NUMBER,NUMBER,..., for example slip=0.1,0.2, not "
                f"{item!r:.60}."
            ) from None
    return [({}, environment), *(shift_grid(environment, values) if values else [])]


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _plan(request: CertificateRequest, rows: Rows, seeds: int, promises: int) -> Plan:
    return Plan(
        confidence=request.confidence,
        statements=seeds * len(rows) * promises,
        episodes=request.episodes,
        early_stop=request.early_stop,
        batch=request.batch if request.episodes is None else min(request.batch, request.episodes),
        cost_bound=_cost_bound(rows, request.largest_step_cost),
        deterministic=request.deterministic,
    )


def _cost_bound(rows: Rows, step: float | None) -> float | tuple[float | None, ...] | None:
    """The largest possible cost of an episode: that of a step, times the longest horizon."""
    stated = largest_step_cost(rows[0][1])
    if isinstance(stated, list | tuple):  # several costs
        longest = max(environment.horizon for _, environment in rows)
        return tuple(None if each is None else float(each * longest) for each in stated)
    if stated is not None and step is not None and step != stated:
        raise CanaryError(
            f"The environment states that a step costs at most {stated:g}; leave out the largest "
            f"step cost {step:g}."
        )
    step = stated if step is None else step
    if step is None:
        return None
    return float(step * max(environment.horizon for _, environment in rows))


def play_statements(
    policies: FrozenPolicies,
    seeds: Sequence[int],
    rows: Rows,
    constraint: Constraint,
    plan: Plan,
    evaluation_seed: int,
    progress_of: Callable[[int, dict[str, int | float]], Progress],
    interrupt_at: Sequence[int] = (),
) -> tuple[PolicyResult, ...]:
    """One result per row, seed and constraint. After Ctrl-C the others get no episode, hence no
    verdict. A replay ends each result after as many episodes as before (`interrupt_at`)."""
    results, stopped = [], False
    statements = [(changes, seed) for changes, _ in rows for seed in seeds]
    decided = commitment(asdict(plan), terms(constraint), statements)
    for index, (changes, environment) in enumerate(rows):
        subject = Subject(environment, policies.account, constraint)
        player = make_player(subject, plan)
        for seed in seeds:
            again = interrupt_at[len(results)] if interrupt_at else None
            found = certify_each(
                subject,
                *policies.of_seed(seed),
                plan,
                key=episode_key(evaluation_seed, seed, index, decided),
                identity=policies.identity(seed),
                progress=progress_of(seed, changes),
                player=player,
                interrupt_at=0 if stopped else again,
            )
            stopped = stopped or found[0][0].interrupted
            results += results_of(seed, changes, found)
        close(environment)
    return tuple(results)


def episode_key(evaluation_seed: int, seed: int, row: int, decided: tuple[int, ...]) -> Any:
    return reduce(
        jax.random.fold_in, (seed, STREAM, *decided, row), jax.random.key(evaluation_seed)
    )


def save(certificate: dict[str, Any], folder: Path) -> Path | None:
    """Write the certificate and its page. An earlier certificate is copied to a name of its own
    first; returns that name."""
    present, place = folder / JSON_NAME, None
    if present in _certificates(folder):
        when = datetime.fromtimestamp(present.stat().st_mtime)
        number, place = 1, folder / f"certificate-{when:%Y%m%d-%H%M%S}.json"
        while place.exists():
            number += 1
            place = folder / f"certificate-{when:%Y%m%d-%H%M%S}-{number}.json"
        for source, target in ((folder / PAGE_NAME, place.with_suffix(".html")), (present, place)):
            if source.is_file() and not source.is_symlink():
                files.write_atomically(target, files.read_bytes(source))
    files.write_json(present, certificate)
    files.write_atomically(folder / PAGE_NAME, render_page(certificate).encode())
    return place


def _certificates(folder: Path) -> list[Path]:
    """The certificates in a directory: the present one and the earlier ones."""
    paths = folder.glob("certificate*.json")
    return [
        path
        for path in paths
        if re.fullmatch(r"certificate(-[\d-]+)?\.json", path.name) and not path.is_symlink()
    ]
