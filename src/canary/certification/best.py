"""The stored policy with the highest return that is certified, corrected for trying several.

1. Ranking. Every stored state of every seed plays episodes of its own. Those within the constraint
   there are ranked by mean return. If there is none, the search ends.
2. Certificate. The first `tries` of the ranking are certified in turn, each on fresh episodes and
   at confidence 1 - (1 - confidence) / tries, until one is SATISFIED. The episodes of a certificate
   are independent of the ranking, so by the union bound a wrong SATISFIED among the tries has
   probability at most 1 - confidence.
"""

import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from canary.certification.certificate import changed_sentence
from canary.certification.plan import check_confidence
from canary.certification.run import CertificateRequest, certify_run
from canary.certification.verdict import percent
from canary.config.config import RunConfig
from canary.constraints import Constraint
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.checkpoint import stored_updates
from canary.runs.environment import open_config
from canary.runs.policies import EvaluationPlan, load_policies, play
from canary.terminal.console import evaluation_bar
from canary.values import Amount, Count, Whole, convert_fields

NAME = "best.json"


@dataclass(frozen=True, kw_only=True)
class Search:
    """How the best policy is searched; decided before anything is played."""

    confidence: float = 0.95
    tries: Count = 3
    """Certificates at most."""
    selection_episodes: Count = 1000
    """Episodes per stored policy, for the ranking alone."""
    episodes: Count | None = None
    """Episodes of a certificate at most; None plans them."""
    seeds: tuple[Whole, ...] | None = None
    largest_step_cost: Amount | None = None
    """For the certificates, if the environment does not state it and the constraint needs it."""

    def __post_init__(self):
        convert_fields(self)
        check_confidence(self.confidence)


@dataclass(frozen=True, kw_only=True)
class RankedPolicy:
    """A stored policy, and what the episodes of the ranking showed."""

    seed: int
    step: int
    return_mean: float
    constraint_value: float
    keeps: bool
    """Whether it stayed within the constraint there; only then it may be certified."""
    verdict: str | None = None
    """Of its certificate, if it was tried."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """A seed and a step, or None if no policy was certified."""

    seed: int | None
    step: int | None
    sentence: str
    search: Search
    candidates: tuple[RankedPolicy, ...]
    """In the order of the ranking."""
    certificate: dict[str, Any] | None

    @property
    def certified(self) -> bool:
        return self.seed is not None

    def __repr__(self) -> str:
        return f"<canary Best: {self.sentence}>"

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        return asdict(self) | {"certified": self.certified}


def find_best(
    run: Path,
    search: Search | None = None,
    *,
    environment: Environment | None = None,
    accept_change: bool = False,
    quiet: bool = False,
) -> Best:
    """Rank the stored policies of a run and certify the first that can be; writes best.json and
    its certificate."""
    search = search or Search()
    config = open_config(run, environment, accept_change=accept_change)
    ranking = ranked(_measured(run, config, search, quiet))
    tries = min(search.tries, sum(policy.keeps for policy in ranking))
    found = Best(seed=None, step=None, sentence="", search=search, candidates=(), certificate=None)
    for place, policy in enumerate(ranking[:tries]):
        request = CertificateRequest(
            confidence=1 - (1 - search.confidence) / tries,
            episodes=search.episodes,
            seeds=(policy.seed,),
            step=policy.step,
            largest_step_cost=search.largest_step_cost,
        )
        certificate = certify_run(
            run, request, environment=config.environment, accept_change=accept_change, quiet=quiet
        )
        ranking[place] = replace(policy, verdict=certificate["verdict"])
        if certificate["verdict"] == "SATISFIED":
            found = replace(found, seed=policy.seed, step=policy.step, certificate=certificate)
            break
    found = replace(found, candidates=tuple(ranking))
    sentence = _sentence(found, tries, config.constraint)
    if config.environment_changes:
        sentence += f" {changed_sentence(config.environment_changes)}"
    found = replace(found, sentence=sentence)
    files.write_json(run / NAME, found.to_dict())
    return found


def _measured(run: Path, config: RunConfig, search: Search, quiet: bool) -> list[RankedPolicy]:
    """All stored policies, each played for the ranking; the states of a seed play the same
    episodes."""
    seeds = config.training.seeds if search.seeds is None else search.seeds
    plan = EvaluationPlan(
        episodes=search.selection_episodes, seeds=seeds, evaluation_seed=secrets.randbits(31)
    )
    steps = [update * config.training.batch for update in sorted(stored_updates(run))]
    if not steps:
        raise CanaryError(f"{run} has no stored state yet, so there is nothing to choose from.")
    found: list[RankedPolicy] = []
    with evaluation_bar(len(steps) * len(seeds) * plan.episodes, quiet=quiet) as (report, _):
        for step in steps:
            table, _ = play(load_policies(config, run, step), plan, report)
            for (seed,), part in table.partition_by("seed", as_dict=True).items():
                value = config.constraint.measure(part["cost"].to_numpy())
                found.append(
                    RankedPolicy(
                        seed=seed,
                        step=step,
                        return_mean=float(part["return"].to_numpy().mean()),
                        constraint_value=value,
                        keeps=value <= config.constraint.allowed,
                    )
                )
    return found


def ranked(policies: list[RankedPolicy]) -> list[RankedPolicy]:
    """Those within the constraint by return, the highest first; then the others, safest first."""

    def place(policy: RankedPolicy) -> tuple[bool, float]:
        return not policy.keeps, -policy.return_mean if policy.keeps else policy.constraint_value

    return sorted(policies, key=place)


def _sentence(best: Best, tries: int, constraint: Constraint) -> str:
    count, first = len(best.candidates), best.candidates[0]
    advice = "train longer, under a tighter constraint or with more kept checkpoints"
    if not tries:
        return (
            f"None of {count} stored policies is within {constraint.text} in the "
            f"{best.search.selection_episodes:,} episodes of its ranking, so none was certified. "
            f"The safest, seed {first.seed} at step {first.step:,}, has "
            f"{first.constraint_value:.4g}; {advice}."
        )
    if not best.certified:
        verdicts = ", ".join(str(one.verdict).lower() for one in best.candidates[:tries])
        within = sum(one.keeps for one in best.candidates)
        more = ", or allow more --tries" if tries < within else ""
        return (
            f"None of the first {tries} was certified ({verdicts}); {within} of {count} stored "
            f"policies are within the limit in the ranking; {advice}{more}."
        )
    chosen = next(one for one in best.candidates if one.verdict == "SATISFIED")
    return (
        f"Seed {best.seed} at step {best.step:,} has the highest return that was certified, "
        f"{chosen.return_mean:.4g}. With {percent(best.search.confidence)} confidence, corrected "
        f"for {tries} tries among {count} stored policies, it stays within the limit; its "
        "certificate states the corrected level."
    )
