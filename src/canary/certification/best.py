"""The richest policy of a run that is certified, with the correction for having looked at several.

1. Selection. Every stored state of every seed plays episodes of its own (the stream of
   evaluations). Those whose measured constraint holds are ranked by their mean return.
   If there is none, the search ends here.
2. Certificate. The first `tries` of the ranking are certified in turn, each on fresh episodes and
   at the confidence 1 - (1 - confidence) / tries, until one is SATISFIED. Whatever the selection
   did, the episodes of a certificate are independent of it, so by the union bound a wrong SATISFIED
   among the tries has at most the probability 1 - confidence.
"""

import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from canary.certification.run import Request, certify_run
from canary.certification.sentences import changed_sentence
from canary.constraints import Constraint
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.environment import open_config
from canary.runs.policies import EvaluationPlan, load_policies, play
from canary.runs.stored_states import stored_updates
from canary.terminal.bars import evaluation_bar

NAME = "best.json"


@dataclass(frozen=True, kw_only=True)
class Search:
    """How the best policy is looked for; decided before anything is played."""

    confidence: float = 0.95
    tries: int = 3
    """Certificates at most."""
    selection_episodes: int = 1000
    """Episodes per candidate, for the ranking alone."""
    episodes: int | None = None
    """Episodes of a certificate at most; None plans them from constraint and confidence."""
    seeds: tuple[int, ...] | None = None
    largest_step_cost: float | None = None
    """For the certificates, where the environment does not state it and the constraint needs
    it."""

    def __post_init__(self):
        for name in ("tries", "selection_episodes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise CanaryError(
                    f"{name.replace('_', ' ')} must be a positive whole number, not {value!r:.40}."
                )
        if not 0 < self.confidence < 1:
            raise CanaryError(
                "The confidence must lie strictly between 0 and 1, such as 0.95, not "
                f"{self.confidence!r:.40}."
            )


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A stored policy, and what the episodes of the selection said about it."""

    seed: int
    step: int
    return_mean: float
    constraint_value: float
    keeps: bool
    """Whether it kept the constraint in these episodes; only then it may be certified."""
    verdict: str | None = None
    """Of its certificate, if it was tried."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """What was found: a seed and a step, or None where no candidate was certified."""

    seed: int | None
    step: int | None
    sentence: str
    search: Search
    candidates: tuple[Candidate, ...]
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
    """Rank the stored policies of a run and certify the richest that can be; writes best.json and
    its certificate."""
    search = search or Search()
    config = open_config(run, environment, accept_change=accept_change)
    ranking = ranked(_measured(run, config, search, quiet))
    tries = min(search.tries, sum(candidate.keeps for candidate in ranking))
    level = 1 - (1 - search.confidence) / max(tries, 1)
    found = Best(seed=None, step=None, sentence="", search=search, candidates=(), certificate=None)
    for place, candidate in enumerate(ranking[:tries]):
        request = Request(
            confidence=level,
            episodes=search.episodes,
            seeds=(candidate.seed,),
            step=candidate.step,
            largest_step_cost=search.largest_step_cost,
        )
        certificate = certify_run(
            run, request, environment=config.environment, accept_change=accept_change, quiet=quiet
        )
        ranking[place] = replace(candidate, verdict=certificate["verdict"])
        if certificate["verdict"] == "SATISFIED":
            found = replace(
                found, seed=candidate.seed, step=candidate.step, certificate=certificate
            )
            break
    found = replace(found, candidates=tuple(ranking))
    changes = config.environment_changes
    said = [_sentence(found, tries, config.constraint)]
    said += [changed_sentence(changes)] if changes else []
    found = replace(found, sentence=" ".join(said))
    files.write_json(run / NAME, found.to_dict(), within=run)
    return found


def _measured(run: Path, config: Any, search: Search, quiet: bool) -> list[Candidate]:
    """All stored policies, each played for the ranking; the same episodes of a seed for all its
    states."""
    seeds = config.training.seeds if search.seeds is None else search.seeds
    plan = EvaluationPlan(
        episodes=search.selection_episodes, seeds=seeds, evaluation_seed=secrets.randbits(31)
    )
    steps = [update * config.training.batch for update in sorted(stored_updates(run))]
    candidates: list[Candidate] = []
    with evaluation_bar(len(steps) * len(seeds) * plan.episodes, quiet=quiet) as (report, _):
        for step in steps:
            table, _ = play(load_policies(config, run, step), plan, report)
            for (seed,), part in table.partition_by(
                "seed", as_dict=True, maintain_order=True
            ).items():
                value = config.constraint.measure(part["cost"].to_numpy())
                reward = float(part["return"].to_numpy().mean())
                keeps = value <= config.constraint.allowed
                candidates.append(
                    Candidate(
                        seed=seed,
                        step=step,
                        return_mean=reward,
                        constraint_value=value,
                        keeps=keeps,
                    )
                )
    if not candidates:
        raise CanaryError(f"{run} has no stored state yet, so there is nothing to choose from.")
    return candidates


def ranked(candidates: list[Candidate]) -> list[Candidate]:
    """The richest first among those that keep the constraint as measured; behind them the others,
    the safest first."""

    def place(candidate: Candidate) -> tuple[bool, float]:
        keeps = candidate.keeps
        return not keeps, -candidate.return_mean if keeps else candidate.constraint_value

    return sorted(candidates, key=place)


def _sentence(best: Best, tries: int, constraint: Constraint) -> str:
    confidence, count = f"{100 * best.search.confidence:.4g}%", len(best.candidates)
    tried = f"{tries} of {count} candidates could be tried"
    advice = "train longer, under a tighter constraint or with more kept checkpoints"
    keeping = sum(one.keeps for one in best.candidates)
    if not keeping:
        safest = best.candidates[0]
        return (
            f"None of {count} candidates keeps {constraint.text} in its "
            f"{best.search.selection_episodes:,} episodes of the ranking, so none was certified: the "
            f"safest, seed {safest.seed} at step {safest.step:,}, has {safest.constraint_value:.4g}; "
            f"{advice}."
        )
    if not best.certified:
        verdicts = [one.verdict for one in best.candidates if one.verdict is not None]
        more = ", or allow more --tries" if len(verdicts) < keeping else ""
        return (
            f"None of the {len(verdicts)} richest was certified ({', '.join(verdicts).lower()}), of "
            f"{keeping} of {count} candidates that keep the limit in the ranking; {advice}{more}."
        )
    chosen = next(one for one in best.candidates if (one.seed, one.step) == (best.seed, best.step))
    return (
        f"Seed {best.seed} at step {best.step:,} is the richest that was certified: return "
        f"{chosen.return_mean:.4g}. With {confidence} confidence, although {tried}, it keeps the "
        "limit; its certificate states the corrected level."
    )
