"""Train seeds of a configuration, on this machine or over a Ray cluster, and measure what the store
keeps of them."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from canary.config.config import RunConfig, config_from_dict, config_to_dict
from canary.constraints import one_cost
from canary.environments import ENVIRONMENTS
from canary.errors import CanaryError
from canary.exact.mdp import from_environment
from canary.exact.run import policy_law
from canary.runs import directory
from canary.runs.files import digest_of
from canary.runs.manifest import codes_of, read_manifest
from canary.runs.policies import EvaluationPlan, FrozenPolicies, load_policies, play
from canary.runs.runner import resume_run, start_run
from canary.terminal.bars import counting_bar

WITHOUT_INFLUENCE = ("seeds", "chunk", "checkpoint_seconds", "seeds_per_device")
FINAL_EPISODES = 500  # of each final policy, where the environment is not finite
RETRIES = 10  # of a unit whose Ray worker died

Known = dict[int, dict[str, Any]]
Results = tuple[Known, tuple[Any, Any], int]
"""What is known of each seed, its tables of episodes and metrics, and its steps."""
Stored = Callable[[int, RunConfig, Results], None]
Engine = Callable[[list[RunConfig], list[Path], Stored], None]
"""Trains the seeds of each configuration in its place, and hands each over as it is finished."""


def settings_of(config: RunConfig) -> str:
    """A digest that is equal for equal settings."""
    return _digest(config_to_dict(config))


def stored_settings(plain: dict[str, Any]) -> str | None:
    """The same of a stored configuration; None if this version of canary cannot read it.

    Only configurations of our own environments are opened: others would run the user's code.
    """
    try:
        is_ours = plain["environment"]["name"] in ENVIRONMENTS
        return settings_of(config_from_dict(plain)) if is_ours else _digest(plain)
    except (CanaryError, KeyError, TypeError):
        return None


def _digest(plain: dict[str, Any]) -> str:
    training = {k: v for k, v in plain["training"].items() if k not in WITHOUT_INFLUENCE}
    return digest_of({k: v for k, v in plain.items() if k != "preset"} | {"training": training})


def with_seeds(config: RunConfig, seeds: Sequence[int]) -> RunConfig:
    return replace(config, training=replace(config.training, seeds=tuple(seeds)))


def engine_named(name: str, quiet: bool) -> Engine:
    return ray_engine(quiet) if name == "ray" else local_engine(quiet)


def local_engine(quiet: bool) -> Engine:
    """One row after the other; its seeds share the cores of this machine."""

    def train(configs: list[RunConfig], places: list[Path], stored: Stored) -> None:
        for index, (config, place) in enumerate(zip(configs, places, strict=True)):
            for part, run in _finished_runs(config, place, quiet=quiet):
                stored(index, part, results_of(part, run))

    return train


def ray_engine(quiet: bool) -> Engine:
    """One task per seed, on the cluster of RAY_ADDRESS, the one on this machine, or a new one.

    A seed whose worker or node dies is trained again elsewhere. It continues from its last
    checkpoint where the nodes share the runs' directory. Its numbers are those of the local engine.
    """
    try:
        import ray
    except ImportError:
        raise CanaryError("--engine ray needs Ray: pip install 'canary-rl[ray]'.") from None

    def train(configs: list[RunConfig], places: list[Path], stored: Stored) -> None:
        if not configs:
            return
        ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
        task = ray.remote(max_retries=RETRIES, num_cpus=1)(_train_unit)
        waiting: dict[Any, tuple[int, str]] = {}
        for index, (config, place) in enumerate(zip(configs, places, strict=True)):
            for seed in config.training.seeds:
                plain = config_to_dict(with_seeds(config, (seed,)))
                unit = task.remote(plain, str(place.resolve() / f"seed-{seed}"))
                waiting[unit] = index, f"{place.name}, seed {seed}"
        total = len(waiting)
        try:
            with counting_bar("units", quiet=quiet) as progress:
                progress(0, total, "waiting for the first unit")
                while waiting:
                    done, _ = ray.wait(list(waiting), num_returns=1)
                    index, label = waiting.pop(done[0])
                    for plain, results in _unit(ray, done[0], label):
                        stored(index, config_from_dict(plain), results)
                    progress(total - len(waiting), total, label)
        finally:
            for unit in waiting:
                ray.cancel(unit, force=True)

    return train


def _train_unit(plain: dict[str, Any], place: str) -> list[tuple[dict[str, Any], Results]]:
    """What a Ray worker does: one seed, in a directory that it may share with others."""
    found = _finished_runs(config_from_dict(plain), Path(place), quiet=True, leave_running=True)
    return [(config_to_dict(part), results_of(part, run)) for part, run in found]


def _unit(ray: Any, unit: Any, label: str) -> list[tuple[dict[str, Any], Results]]:
    try:
        return ray.get(unit)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        text = str(cause) if isinstance(cause, CanaryError) else f"{label} failed: {cause!r}"
        raise CanaryError(text) from error
    except ray.exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0]
        raise CanaryError(f"{label} failed after {RETRIES} retries ({reason}).") from error


def _finished_runs(
    config: RunConfig, runs: Path, *, quiet: bool, leave_running: bool = False
) -> Iterator[tuple[RunConfig, Path]]:
    """Finished runs of these seeds: those that exist, those that are resumed, and a new one for the
    rest.

    A run that seems to be running elsewhere is an error or, with `leave_running`, left alone: a
    worker that died looks like that.
    """
    missing = set(config.training.seeds)
    for run, seeds in runs_of(config, runs):
        if leave_running and read_manifest(run)["status"] == "running":
            continue
        if set(seeds) <= missing:
            yield with_seeds(config, seeds), _finished(resume_run(run, quiet=quiet))
            missing -= set(seeds)
    if missing:
        rest = with_seeds(config, [seed for seed in config.training.seeds if seed in missing])
        yield rest, _finished(start_run(rest, runs, quiet=quiet))


def _finished(run: Path) -> Path:
    if read_manifest(run)["status"] != "finished":
        raise KeyboardInterrupt
    return run


def runs_of(config: RunConfig, runs: Path) -> list[tuple[Path, tuple[int, ...]]]:
    """The runs below `runs` with these settings, and their seeds; finished ones first, then the
    newest."""
    wanted, found = settings_of(config), []
    for row in directory.list_runs(runs):
        if row.status not in ("failed", "unreadable"):
            stored = directory.read_json(Path(row.path) / "config.json")
            if stored_settings(stored) == wanted:
                seeds = tuple(stored["training"]["seeds"])
                found.append((row.status != "finished", Path(row.path), seeds))
    return [(path, seeds) for _, path, seeds in sorted(found, key=lambda item: item[0])]


def results_of(config: RunConfig, run: Path) -> Results:
    """What the store needs of a finished run: what is known of each seed, its tables, its steps."""
    manifest = read_manifest(run)
    seeds = config.training.seeds
    seconds = manifest.get("train_seconds")
    origin = {
        "code": codes_of(manifest),
        "versions": manifest.get("versions", {}),
        "train_seconds": None if seconds is None else seconds / len(seeds),
    }
    final = final_policies(config, run)
    known = {seed: {"final": final.get(seed), **origin} for seed in seeds}
    tables = directory.read(run, "episodes"), directory.read(run, "metrics")
    return known, tables, int(manifest["steps"])


def final_policies(config: RunConfig, run: Path) -> Known:
    """The final policies: by dynamic programming in a finite environment, else on fresh episodes."""
    try:
        policies = load_policies(config, run)
    except CanaryError as error:  # the training is worth keeping without them
        warnings.warn(f"The final policies of {run} are not measured: {error}", stacklevel=2)
        return {}
    try:
        mdp = from_environment(config.environment)
    except CanaryError:
        return _played(policies)
    return {seed: _exact(policies, mdp, seed) for seed in config.training.seeds}


def _played(policies: FrozenPolicies) -> Known:
    episodes, _ = play(policies, EvaluationPlan(episodes=FINAL_EPISODES))
    limit, result = one_cost(policies.config.constraint, "A study").limit, {}
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


def _exact(policies: FrozenPolicies, mdp: Any, seed: int) -> dict[str, Any]:
    config, critics = policies.config, policies.risk_critics(seed)
    limit = one_cost(config.constraint, "A study").limit
    law = policy_law(config.environment, mdp, policies.account, *policies.of_seed(seed))
    dead_zone = None if critics is None else critics.dead_zone
    return {
        "violation": law.violation(limit),
        "return": law.expected_return,
        "cost_mean": law.mean,
        "cost_deviation": law.variance**0.5,
        "guaranteed": law.guaranteed_violation(limit, dead_zone),
    }
