"""Certify a run: play fresh episodes of its frozen policies, write certificate.json and
certificate.html.

The key of episode j of seed i in row r of the shift grid (row 0: nothing changed) is
key(evaluation seed) with i, a stream of its own, the four numbers of the `commitment`, r and j
folded in. So a certificate can be replayed, but only with its own plan.
"""

import itertools
import secrets
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax

from canary.certification.certificate import (
    FORMAT,
    Changes,
    Result,
    commitment,
    examine,
    judge,
    policy_name,
)
from canary.certification.certify import gather, make_player
from canary.certification.page import render_page
from canary.certification.plan import Plan, complete
from canary.config.config import complete_constraint
from canary.config.run_config import RunConfig
from canary.constraints import Constraint, parts_of
from canary.environments.protocol import Environment, settings_of, with_settings
from canary.errors import CanaryError, nearest
from canary.runs import files
from canary.runs.directory import versions
from canary.runs.environment import open_config
from canary.runs.policies import FrozenPolicies, load_policies
from canary.terminal.console import counting_bar
from canary.values import Amount, Texts, Whole, checked, convert

STREAM = 0x63657274  # "cert": neither training nor evaluation uses these keys
JSON_NAME, PAGE_NAME = "certificate.json", "certificate.html"
Statement = tuple[Changes, int]
"""Changes of the environment, and the seed of the policy."""
Show = Callable[[int, int, str], None]
"""Called with (episodes done, episodes in all, name of the policy)."""


@checked
def certify_run(
    run: Path,
    plan: Plan | None = None,
    *,
    seeds: tuple[Whole, ...] | None = None,
    step: Whole | None = None,
    shift: Texts = (),
    limit: float | tuple[float, ...] | None = None,
    epsilon: float | tuple[float, ...] | None = None,
    evaluation_seed: Whole | None = None,
    largest_step_cost: Amount | None = None,
    sign: Any = None,
    config: RunConfig | None = None,
    out: Path | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Certify the policies of a run; writes certificate.json and .html into `out`, or the run.

    `plan` does not yet have the number of statements and the largest cost of an episode; `config`
    is the run's opened configuration; `canary.certify` explains the other arguments. Without an
    evaluation seed a fresh one is drawn, so that nobody can train or select for known episodes.
    """
    folder = out or run
    if sign is not None:
        from canary.certification import signature  # needs cryptography

        sign = partial(signature.sign, key=signature.read_key(sign, "private"))
    config = config or open_config(run)
    policies = load_policies(config, run, step)
    for note in policies.notes:
        warnings.warn(note, stacklevel=4)
    seeds = config.training.seeds if seeds is None else seeds
    if not seeds or len(set(seeds)) < len(seeds):
        raise CanaryError(f"Certify one or more different seeds of the run, not {list(seeds)}.")
    for seed in seeds:  # refuse unknown and non-finite ones before anything is played
        policies.of_seed(seed)
    rows, horizon = shifted(config.environment, shift)
    statements = [(changes, seed) for changes in rows for seed in seeds]
    asked = {"limit": limit, "epsilon": epsilon}
    constraint = complete_constraint(asked, config.constraint, "the run")
    plan = plan or Plan()
    plan = replace(
        plan,
        statements=len(statements) * len(parts_of(constraint)),
        batch=plan.batch if plan.episodes is None else min(plan.batch, plan.episodes),
        cost_bound=_largest_cost(config.environment, horizon, largest_step_cost),
    )
    plan = complete(plan, constraint)
    evaluation_seed = secrets.randbits(31) if evaluation_seed is None else evaluation_seed
    files.make_folder(folder)
    files.check_writable(folder)  # before the episodes are played
    certificate = issue(policies, statements, constraint, plan, evaluation_seed, quiet=quiet)
    earlier = len(list(folder.glob("certificate*.json")))
    certificate["origin"] |= {"run": run.name, "earlier": earlier}
    certificate["versions"] = versions()
    certificate["time"] = datetime.now().astimezone().isoformat(timespec="seconds")
    certificate["format"] = FORMAT
    certificate = certificate if sign is None else sign(certificate)
    save(certificate, folder)
    return certificate


def issue(
    policies: FrozenPolicies,
    statements: Sequence[Statement],
    constraint: Constraint,
    plan: Plan,
    evaluation_seed: int,
    counts: Sequence[int] | None = None,
    *,
    quiet: bool,
) -> dict[str, Any]:
    """A certificate without labels: the part that the policies and the plan determine."""
    config = policies.config
    origin: dict[str, Any] = {"algorithm": config.algorithm_name, "updates": policies.iteration}
    if config.environment_changes:
        origin["environment_changes"] = list(config.environment_changes)
    with counting_bar(f"certifying {constraint.text}", quiet=quiet) as show:
        results = play(policies, statements, constraint, plan, evaluation_seed, show, counts)
    return {
        "environment": config.environment_name,
        "settings": settings_of(config.environment),
        "cost_discount": float(policies.account.cost_discount),
        "origin": origin,
        **judge(results, plan, constraint, config.environment_changes),
        "evaluation_seed": evaluation_seed,
    }


def play(
    policies: FrozenPolicies,
    statements: Sequence[Statement],
    constraint: Constraint,
    plan: Plan,
    evaluation_seed: int,
    show: Show,
    counts: Sequence[int] | None = None,
) -> list[Result]:
    """Play the episodes of each statement according to the plan, or `counts` episodes. After Ctrl-C
    the remaining statements get no episodes and no verdict."""
    usual, decided = policies.config.environment, commitment(plan, constraint, statements)
    results: list[Result] = []
    most, stopped, place = plan.episodes or 0, False, 0
    for row, (changes, group) in enumerate(itertools.groupby(statements, key=itemgetter(0))):
        environment = with_settings(usual, changes) if changes else usual
        player = make_player(environment, policies.account, plan)
        for _, seed in group:
            key = jax.random.key(evaluation_seed)
            for number in (seed, STREAM, *decided, row):
                key = jax.random.fold_in(key, number)

            def report(
                episodes: int, done: int = place * most, what: str = policy_name(seed, changes)
            ):
                show(done + episodes, most * len(statements), what)

            count = None if counts is None else counts[place]
            rows = partial(player, *policies.of_seed(seed), key)
            table, interrupted = gather(rows, plan, constraint, report, 0 if stopped else count)
            stopped = stopped or interrupted
            about = {"changes": changes, "policy_sha256": policies.trained(seed).sha256}
            results += examine(table, plan, constraint, seed=seed, **about)
            place += 1
    return results


def shifted(environment: Environment, shifts: Sequence[str]) -> tuple[list[Changes], int]:
    """No change, then every combination of shifts such as "slip=0.1,0.2"; and the longest horizon
    of all."""
    settings, values = settings_of(environment), {}
    known = [name for name, value in settings.items() if type(value) in (int, float)]
    for shift in shifts:
        name, _, texts = (part.strip() for part in shift.partition("="))
        if name not in known:
            raise CanaryError(
                f"{type(environment).__name__} has no numeric setting {name!r} to "
                f"shift{nearest(name, known)}"
            )
        kind = type(settings[name])
        values[name] = [convert(kind, text.strip(), f"--shift {name}") for text in texts.split(",")]
    grid = itertools.product(*values.values()) if values else []
    rows: list[Changes] = [{}, *(dict(zip(values, row, strict=True)) for row in grid)]
    environments = [with_settings(environment, row) if row else environment for row in rows]
    if any(one.observation_size != environment.observation_size for one in environments):
        raise CanaryError(f"Another {' or '.join(values)} changes what the policy sees.")
    return rows, max(one.horizon for one in environments)


def _largest_cost(environment: Environment, horizon: int, given: float | None) -> Any:
    """The largest cost of an episode, from the stated or given largest cost of a step."""
    stated = getattr(environment, "largest_step_cost", None)
    if stated is not None and given not in (None, stated):
        raise CanaryError(
            f"The environment states that a step costs at most {stated}; leave out the largest "
            f"step cost {given:g}."
        )
    step = given if stated is None else stated
    if isinstance(step, list | tuple):  # several costs
        return tuple(None if each is None else float(each * horizon) for each in step)
    return None if step is None else float(step * horizon)


def save(certificate: dict[str, Any], folder: Path) -> None:
    """Write the certificate and its page. An earlier certificate is renamed by its time."""
    present, page = folder / JSON_NAME, folder / PAGE_NAME
    if present.is_file():
        when = datetime.fromtimestamp(present.stat().st_mtime)
        kept = folder / f"certificate-{when:%Y%m%d-%H%M%S-%f}.json"
        present.rename(kept)
        if page.is_file():
            page.rename(kept.with_suffix(".html"))
    files.write_json(present, certificate)
    files.write_atomically(page, render_page(certificate).encode())
