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
from canary.certification.plan import Plan, check_confidence
from canary.certification.run import certify_run
from canary.certification.verdict import percent
from canary.config.config import RunConfig
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.checkpoint import stored_updates
from canary.runs.environment import open_config
from canary.runs.policies import EvaluationPlan, load_policies, play
from canary.terminal.console import evaluation_bar

NAME = "best.json"
ADVICE = "Train longer, under a tighter constraint or with more kept checkpoints"


@dataclass(frozen=True)
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


def find_best(
    run: Path,
    *,
    confidence: float = 0.95,
    tries: int = 3,
    selection_episodes: int = 1000,
    seeds: tuple[int, ...] | None = None,
    episodes: int | None = None,
    largest_step_cost: float | None = None,
    environment: Environment | None = None,
    accept_change: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Rank the stored policies of a run and certify the first that can be, at most `tries` of them;
    writes best.json and its certificate. `episodes` is the largest number for a certificate.

    Returns whether a policy is `certified`, its `seed` and `step`, a `sentence`, the `candidates` in
    the order of the ranking, and the `certificate`; None where no policy is certified.
    """
    check_confidence(confidence)
    config = open_config(run, environment, accept_change=accept_change)
    search = {"confidence": confidence, "tries": tries, "selection_episodes": selection_episodes}
    seeds = config.training.seeds if seeds is None else seeds
    ranking = ranked(_measured(run, config, selection_episodes, seeds, quiet))
    tries = min(tries, sum(policy.keeps for policy in ranking))
    chosen, certificate = None, None
    for place, policy in enumerate(ranking[:tries]):
        found = certify_run(
            run,
            Plan(confidence=1 - (1 - confidence) / tries, episodes=episodes),
            seeds=(policy.seed,),
            step=policy.step,
            largest_step_cost=largest_step_cost,
            environment=config.environment,
            accept_change=accept_change,
            quiet=quiet,
        )
        ranking[place] = replace(policy, verdict=found["verdict"])
        if found["verdict"] == "SATISFIED":
            chosen, certificate = ranking[place], found
            break
    best = {
        "seed": chosen.seed if chosen else None,
        "step": chosen.step if chosen else None,
        "sentence": _sentence(ranking, tries, chosen, search, config),
        "search": search,
        "candidates": [asdict(one) for one in ranking],
        "certificate": certificate,
        "certified": chosen is not None,
    }
    files.write_json(run / NAME, best)
    return best


def _measured(
    run: Path, config: RunConfig, episodes: int, seeds: tuple[int, ...], quiet: bool
) -> list[RankedPolicy]:
    """All stored policies, each played for the ranking; the states of a seed play the same
    episodes."""
    plan = EvaluationPlan(episodes=episodes, seeds=seeds, evaluation_seed=secrets.randbits(31))
    steps = [update * config.training.batch for update in sorted(stored_updates(run))]
    if not steps:
        raise CanaryError(f"{run} has no stored state yet, so there is nothing to choose from.")
    found, constraint = [], config.constraint
    with evaluation_bar(len(steps) * len(seeds) * episodes, quiet=quiet) as (report, _):
        for step in steps:
            table, _ = play(load_policies(config, run, step), plan, report)
            for (seed,), part in table.partition_by("seed", as_dict=True).items():
                value = constraint.measure(part["cost"].to_numpy())
                reward = float(part["return"].to_numpy().mean())
                keeps = value <= constraint.allowed
                found.append(RankedPolicy(seed, step, reward, value, keeps))
    return found


def ranked(policies: list[RankedPolicy]) -> list[RankedPolicy]:
    """Those within the constraint by return, the highest first; then the others, safest first."""
    return sorted(
        policies,
        key=lambda one: (not one.keeps, -one.return_mean if one.keeps else one.constraint_value),
    )


def _sentence(
    ranking: list[RankedPolicy],
    tries: int,
    chosen: RankedPolicy | None,
    search: dict[str, Any],
    config: RunConfig,
) -> str:
    count, first = len(ranking), ranking[0]
    if chosen is not None:
        sentence = (
            f"Seed {chosen.seed} at step {chosen.step:,} has the highest return that was certified, "
            f"{chosen.return_mean:.4g}: with {percent(search['confidence'])} confidence, corrected "
            f"for {tries} tries among {count} stored policies, it stays within the limit."
        )
    elif tries:
        verdicts = ", ".join(str(one.verdict).lower() for one in ranking[:tries])
        sentence = (
            f"None of the first {tries} was certified ({verdicts}). In the ranking "
            f"{sum(one.keeps for one in ranking)} of {count} stored policies are within the limit. "
            f"{ADVICE}, or allow more --tries."
        )
    else:
        sentence = (
            f"None of {count} stored policies is within {config.constraint.text} in the "
            f"{search['selection_episodes']:,} episodes of its ranking. The safest, seed {first.seed} "
            f"at step {first.step:,}, has {first.constraint_value:.4g}. {ADVICE}."
        )
    changes = config.environment_changes
    return f"{sentence} {changed_sentence(changes)}" if changes else sentence
