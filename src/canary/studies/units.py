"""Train seeds of one setting, and take from their run what the store keeps."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from canary.config.config import RunConfig, config_to_dict
from canary.errors import CanaryError
from canary.exact.mdp import from_environment
from canary.exact.run import policy_law
from canary.runs import directory
from canary.runs.manifest import codes_of, read_manifest
from canary.runs.policies import EvaluationPlan, FrozenPolicies, load_policies, play
from canary.runs.runner import resume_run, start_run
from canary.studies.plan import meaning, meaning_of
from canary.studies.store import TABLES, Units

FINAL_EPISODES = 500
PerSeed = dict[int, dict[str, Any]]


def with_seeds(config: RunConfig, seeds: tuple[int, ...]) -> RunConfig:
    return replace(config, training=replace(config.training, seeds=seeds))


def finished_runs(
    config: RunConfig, runs: Path, *, quiet: bool, leave_running: bool = False
) -> Iterator[tuple[RunConfig, Path]]:
    """Finished runs of these seeds: those that are there, those that go on, and a new one for the
    rest.

    A run that another process seems to be training is an error or, with `leave_running`, left
    alone: a worker that died elsewhere looks like that.
    """
    missing = set(config.training.seeds)
    for run, seeds in runs_of(config, runs):
        if leave_running and read_manifest(run)["status"] == "running":
            continue
        if set(seeds) <= missing:
            yield with_seeds(config, seeds), _finished(resume_run(run, quiet=quiet))
            missing -= set(seeds)
    if missing:
        rest = with_seeds(config, tuple(seed for seed in config.training.seeds if seed in missing))
        yield rest, _finished(start_run(rest, runs, quiet=quiet))


def _finished(run: Path) -> Path:
    if read_manifest(run)["status"] != "finished":
        raise KeyboardInterrupt
    return run


def runs_of(config: RunConfig, runs: Path) -> list[tuple[Path, tuple[int, ...]]]:
    """The runs below `runs` with these settings, and their seeds; finished ones first, then the
    newest."""
    wanted, found = meaning(config), []
    for row in directory.list_runs(runs):
        if row.status not in ("failed", "unreadable"):
            stored = directory.read_json(Path(row.path) / "config.json")
            if meaning_of(stored) == wanted:
                found.append(
                    (row.status != "finished", Path(row.path), tuple(stored["training"]["seeds"]))
                )
    return [(path, seeds) for _, path, seeds in sorted(found, key=lambda item: item[0])]


def units_of(config: RunConfig, run: Path) -> Units:
    """What the store keeps of a finished run."""
    manifest = read_manifest(run)
    seeds = config.training.seeds
    seconds = manifest.get("train_seconds")
    origin = {
        "versions": manifest.get("versions", {}),
        "code": codes_of(manifest),
        "device": manifest.get("device"),
        "started": manifest.get("started"),
        "train_seconds": None if seconds is None else seconds / len(seeds),
    }
    return Units(
        config=config_to_dict(config),
        steps=int(manifest["steps"]),
        tables={kind: directory.read(run, kind) for kind in TABLES},
        provenance=dict.fromkeys(seeds, origin),
        per_seed=final_policies(config, run),
    )


def final_policies(config: RunConfig, run: Path) -> dict[str, PerSeed]:
    """What the final policies do: by dynamic programming where the environment is finite, else on
    fresh episodes."""
    try:
        policies = load_policies(config, run)
    except CanaryError as error:  # the training is worth keeping without them
        warnings.warn(f"The final policies of {run} are not measured: {error}", stacklevel=2)
        return {}
    try:
        from_environment(config.environment)
    except CanaryError:
        return {"final": _played(policies)}
    return {"exact": _exact(policies)}


def _played(policies: FrozenPolicies) -> PerSeed:
    episodes, _ = play(policies, EvaluationPlan(episodes=FINAL_EPISODES))
    limit = policies.config.constraint.limit
    result: PerSeed = {}
    for rows in episodes.partition_by("seed", maintain_order=True):
        cost, reward = (rows[name].to_numpy().astype(float) for name in ("cost", "return"))
        result[int(rows["seed"][0])] = {
            "episodes": len(rows),
            "violations": int((cost > limit).sum()),
            "violation": float((cost > limit).mean()),
            "return": float(reward.mean()),
            "cost_mean": float(cost.mean()),
            "cost_deviation": float(cost.std()),
        }
    return result


def _exact(policies: FrozenPolicies) -> PerSeed:
    config = policies.config
    mdp, limit = from_environment(config.environment), config.constraint.limit
    result: PerSeed = {}
    for seed in config.training.seeds:
        law = policy_law(config.environment, mdp, limit, *policies.of_seed(seed))
        critics = policies.risk_critics(seed)
        result[seed] = {
            "violation": law.violation(limit),
            "return": law.expected_return,
            "cost_mean": law.mean,
            "cost_deviation": law.variance**0.5,
            "guaranteed": law.guaranteed_violation(
                limit, None if critics is None else critics.dead_zone
            ),
        }
    return result
