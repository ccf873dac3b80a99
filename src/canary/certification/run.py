"""Certificates of runs: play fresh episodes of the frozen policies, write certificate.json and
certificate.html.

Episode j of seed i in row r of the shift grid (row 0: nothing changed) has the key that comes of
folding i, a stream of our own, the four numbers of the `commitment`, r and j into key(evaluation
seed): any certificate can be replayed, and only with the plan that it was played by.
"""

import secrets
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import jax

from canary.certification.certificate import (
    Certificate,
    Result,
    commitment,
    methods_of,
    summarise,
    terms,
    to_dict,
)
from canary.certification.certify import Subject, certify, make_player, shift_grid
from canary.certification.on_disk import earlier, save, versions
from canary.certification.plan import Plan, complete
from canary.certification.signature import sign
from canary.constraints import Constraint, Mean
from canary.environments.protocol import Environment, close, largest_step_cost
from canary.errors import CanaryError, nearest
from canary.identity import environment_settings
from canary.runs import files
from canary.runs.environment import open_config
from canary.runs.policies import FrozenPolicies, load_policies
from canary.terminal.certificate_table import CertificationBar

STREAM = 0x63657274  # "cert": neither training nor evaluation uses these keys

Rows = list[tuple[dict[str, int | float], Environment]]
"""What was changed, and the environment so changed; the first row is the environment as it was
trained in."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What shall be certified, and how; the constraint is the run's own unless said otherwise."""

    confidence: float = 0.95
    episodes: int | None = None
    """Episodes per policy, the most if it may stop early; None plans them from constraint and
    confidence."""
    early_stop: bool = True
    step: int | None = None
    """The policies after so many environment steps; None: the newest."""
    seeds: tuple[int, ...] | None = None
    """Which seeds of the run; None: all. Fewer seeds, chosen beforehand, need less of a
    correction."""
    shift: tuple[str, ...] = ()
    """Changed dynamics such as `slip=0.1,0.2`; several are combined into a grid."""
    limit: float | None = None
    epsilon: float | None = None
    deterministic: bool = False
    evaluation_seed: int | None = None
    """None draws a new one, so that nobody can train, or choose, for known episodes."""
    largest_step_cost: float | None = None
    """The largest cost one step can have: gives bounds on mean and CVaR for an environment of your
    own."""
    batch: int = 256
    sign: Any = None
    """A private key (`signature.load_private_key`) to sign the certificate with."""


def certify_run(
    run: Path,
    request: Request | None = None,
    *,
    environment: Environment | None = None,
    accept_change: bool = False,
    out: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Certify the policies of a run; writes certificate.json and certificate.html into `out`, or
    into the run.
    """
    request, folder = request or Request(), out or run
    config = open_config(run, environment, accept_change=accept_change)
    policies = load_policies(config, run, request.step)
    seeds = _seeds(request, policies)
    rows = environment_rows(config.environment, request.shift)
    constraint = _constraint(request, config.constraint)
    plan = complete(_plan(request, policies, rows, len(seeds)), constraint)
    drawn = _evaluation_seed(request)
    files.make_folder(folder)
    files.check_writable(folder)  # now, rather than after all episodes were played
    with CertificationBar(constraint, plan, quiet=quiet) as bar:
        for note in policies.notes:
            bar.message(note)
        results = _results(policies, (seeds, rows), constraint, (plan, drawn), bar)
    for _, played in rows:
        close(played)
    origin = _origin(run, folder, policies)
    certificate = to_dict(_certificate(policies, constraint, (plan, drawn), results, origin))
    certificate = certificate if request.sign is None else sign(certificate, request.sign)
    kept = save(certificate, folder)
    if kept is not None:
        bar.message(f"The certificate that was here before is kept as {kept.name}.")
    return certificate


def _constraint(request: Request, trained: Constraint) -> Constraint:
    """The run's own, with the numbers that were asked for."""
    asked = {"limit": request.limit, "epsilon": request.epsilon}
    if isinstance(trained, Mean) and request.epsilon is not None:
        raise CanaryError(f"The run is about {trained.text}, which has no epsilon; leave it out.")
    return replace(
        trained, **{name: float(value) for name, value in asked.items() if value is not None}
    )


def _origin(run: Path, folder: Path, policies: FrozenPolicies) -> dict[str, Any]:
    config = policies.config
    return {
        "run": run.name,
        "algorithm": config.algorithm_name,
        "updates": policies.iteration,
        "earlier": len(earlier(folder)),
        **changes_of(config.environment_changes),
    }


def _certificate(
    policies: FrozenPolicies,
    constraint: Constraint,
    how: tuple[Plan, int],
    results: tuple[Result, ...],
    origin: dict[str, Any],
) -> Certificate:
    config, (plan, evaluation_seed) = policies.config, how
    verdict, sentence = summarise(results, plan, constraint, config.environment_changes)
    return Certificate(
        environment=config.environment_name,
        settings=environment_settings(config.environment),
        **terms(constraint),
        cost_discount=float(policies.account.cost_discount),
        plan=plan,
        evaluation_seed=evaluation_seed,
        results=results,
        verdict=verdict,
        sentence=sentence,
        origin=origin,
        versions=versions(),
        time=datetime.now().astimezone().isoformat(timespec="seconds"),
        methods=methods_of(constraint.kind),
    )


def changes_of(changes: tuple[str, ...]) -> dict[str, list[str]]:
    """What a certificate says about an environment that differs from the one that was trained
    in."""
    return {"environment_changes": list(changes)} if changes else {}


def _seeds(request: Request, policies: FrozenPolicies) -> tuple[int, ...]:
    seeds = policies.config.training.seeds if request.seeds is None else request.seeds
    if not seeds or len(set(seeds)) < len(seeds):
        raise CanaryError(f"Certify one or more different seeds of the run, not {list(seeds)}.")
    for seed in seeds:  # unknown ones, and sick ones, before anything is played
        policies.of_seed(seed)
    return tuple(seeds)


def _evaluation_seed(request: Request) -> int:
    seed = secrets.randbits(31) if request.evaluation_seed is None else request.evaluation_seed
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise CanaryError(f"The evaluation seed must be a whole number below 2**31, not {seed!r}.")
    return seed


def environment_rows(environment: Environment, shift: tuple[str, ...]) -> Rows:
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
                "--shift expects SETTING=NUMBER,NUMBER,..., for example slip=0.1,0.2, not "
                f"{item!r}."
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
    return Plan(
        confidence=request.confidence,
        statements=seeds * len(rows),
        episodes=request.episodes,
        early_stop=request.early_stop,
        batch=request.batch if request.episodes is None else min(request.batch, request.episodes),
        cost_bound=largest_cost(rows, request.largest_step_cost),
        deterministic=request.deterministic,
    )


def largest_cost(rows: Rows, step: float | None = None) -> float | None:
    """The largest cost that an episode can have: that of a step, stated or given, times the longest
    horizon."""
    stated = largest_step_cost(rows[0][1])
    if (
        stated is not None and step is not None and step != stated
    ):  # a smaller one would be a bound that does not hold
        raise CanaryError(
            f"The environment states itself that a step costs at most {stated:g}; leave out the "
            f"largest step cost {step:g}."
        )
    step = stated if step is None else step
    return (
        None if step is None else float(step * max(environment.horizon for _, environment in rows))
    )


def _results(
    policies: FrozenPolicies,
    what: tuple[tuple[int, ...], Rows],
    constraint: Constraint,
    how: tuple[Plan, int],
    bar: CertificationBar,
) -> tuple[Result, ...]:
    """One result per row and seed. After Ctrl-C the remaining ones get no episode, and hence no
    verdict."""
    (seeds, rows), (plan, evaluation_seed), results, stopped = what, how, [], False
    statements = [(changes, seed) for changes, _ in rows for seed in seeds]
    decided = commitment(asdict(plan), terms(constraint), statements)
    for index, (changes, environment) in enumerate(rows):
        subject = Subject(environment, policies.account, constraint)
        player = make_player(subject, plan)
        for seed in seeds:
            key = episode_key(evaluation_seed, seed, index, decided)
            evidence, assessment = certify(
                subject,
                *policies.of_seed(seed),
                plan,
                key=key,
                identity=policies.identity(seed),
                progress=bar.start(seed, changes),
                player=_refuse if stopped else player,
            )
            stopped = stopped or evidence.interrupted
            results.append(
                Result(seed=seed, changes=changes, evidence=evidence, assessment=assessment)
            )
    return tuple(results)


def episode_key(evaluation_seed: int, seed: int, row: int, decided: tuple[int, ...]) -> Any:
    return reduce(
        jax.random.fold_in, (seed, STREAM, *decided, row), jax.random.key(evaluation_seed)
    )


def _refuse(*_: Any) -> Any:
    raise KeyboardInterrupt
