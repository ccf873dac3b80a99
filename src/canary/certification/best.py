"""Find the certified stored policy with the highest return, corrected for several tries.

1. Ranking. All stored states of all seeds play episodes. Policies that stay within the constraint in
   these episodes are ranked by mean return. If there is none, the search ends.
2. Certificate. The first `tries` of the ranking are certified in turn, each on fresh episodes and
   at confidence 1 - (1 - confidence) / tries, until one is SATISFIED. These episodes are
   independent of the ranking, so by the union bound any of the tries is wrongly SATISFIED with
   probability at most 1 - confidence.
"""

import secrets
from pathlib import Path
from typing import Any

from canary.certification.certificate import changed_sentence, percent
from canary.certification.plan import Plan, check_confidence
from canary.certification.run import certify_run
from canary.config.run_config import RunConfig
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.checkpoint import stored_updates
from canary.runs.environment import open_config
from canary.runs.policies import EvaluationPlan, load_policies, play
from canary.terminal.console import evaluation_bar

ADVICE = "Train longer, under a tighter constraint or with more kept checkpoints"


def find_best(
    run: Path,
    *,
    confidence: float = 0.95,
    tries: int = 3,
    selection_episodes: int = 1000,
    seeds: tuple[int, ...] | None = None,
    episodes: int | None = None,
    largest_step_cost: float | None = None,
    config: RunConfig | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Rank the stored policies of a run and certify them in turn, at most `tries`, until one is
    SATISFIED. Writes best.json and the certificate. `episodes` is the largest number per certificate.

    Returns whether a policy is `certified`, its `seed` and `step`, a `sentence`, the `candidates` in
    the order of the ranking, and the `certificate`; None where no policy is certified.
    """
    check_confidence(confidence)
    config = config or open_config(run)
    candidates = _ranking(run, config, selection_episodes, seeds, quiet)
    safe, count, first = sum(one["keeps"] for one in candidates), len(candidates), candidates[0]
    tries = min(tries, safe)
    seed = step = certificate = None
    if tries:
        sentence = (
            f"None of the first {tries} was certified. In the ranking {safe} of {count} stored "
            f"policies are within the limit. {ADVICE}, or allow more --tries."
        )
    else:
        sentence = (
            f"None of {count} stored policies is within {config.constraint.text} in the "
            f"{selection_episodes:,} episodes of its ranking. The safest, seed {first['seed']} at step "
            f"{first['step']:,}, has {first['constraint_value']:.4g}. {ADVICE}."
        )
    for one in candidates[:tries]:
        found = certify_run(
            run,
            Plan(confidence=1 - (1 - confidence) / tries, episodes=episodes),
            seeds=(one["seed"],),
            step=one["step"],
            largest_step_cost=largest_step_cost,
            config=config,
            quiet=quiet,
        )
        one["verdict"] = found["verdict"]
        if found["verdict"] == "SATISFIED":
            seed, step, certificate = one["seed"], one["step"], found
            sentence = (
                f"Seed {seed} at step {step:,} has the highest return that was certified, "
                f"{one['return_mean']:.4g}: with {percent(confidence)} confidence, corrected for "
                f"{tries} tries among {count} stored policies, it stays within the limit."
            )
            break
    if config.environment_changes:
        sentence += f" {changed_sentence(config.environment_changes)}"
    best = {
        "certified": certificate is not None,
        "seed": seed,
        "step": step,
        "sentence": sentence,
        "candidates": candidates,
        "certificate": certificate,
    }
    files.write_json(run / "best.json", best)
    return best


def _ranking(
    run: Path, config: RunConfig, episodes: int, seeds: tuple[int, ...] | None, quiet: bool
) -> list[dict[str, Any]]:
    """All stored policies, ranked. The states of a seed play the same episodes."""
    seeds = config.training.seeds if seeds is None else seeds
    plan = EvaluationPlan(episodes=episodes, seeds=seeds, evaluation_seed=secrets.randbits(31))
    steps = [update * config.training.batch for update in sorted(stored_updates(run))]
    if not steps:
        raise CanaryError(f"{run} has no stored state yet, so there is nothing to choose from.")
    found = []
    with evaluation_bar(len(steps) * len(seeds) * episodes, quiet=quiet) as (report, _):
        for step in steps:
            table, _ = play(load_policies(config, run, step), plan, report)
            for (seed,), part in table.partition_by("seed", as_dict=True).items():
                value = config.constraint.measure(part["cost"].to_numpy())
                one = {
                    "seed": seed,
                    "step": step,
                    "return_mean": float(part["return"].to_numpy().mean()),
                    "constraint_value": value,
                    "keeps": value <= config.constraint.allowed,
                    "verdict": None,
                }
                found.append(one)
    return sorted(found, key=order)


def order(policy: dict[str, Any]) -> tuple[bool, float]:
    """The sort key of the ranking: first the policies within the constraint, the highest return
    first; then the others, the safest first."""
    value = -policy["return_mean"] if policy["keeps"] else policy["constraint_value"]
    return not policy["keeps"], value
