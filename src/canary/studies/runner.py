"""`canary reproduce` and `canary sweep`: train the seeds of a study that the store does not have, on
this machine or over a Ray cluster.

RUNS/STUDY/ROW/    the runs; a stopped one continues, a finished one is not trained again
RESULTS/STUDY/     the store (`studies.store`), and the study's table and figure

The unit of work is one seed of one row. A row is found again by its settings, also in the folder of
another study. Settings are the same if they give the same numbers: the seeds, the name of the preset
and the sizes of programs and checkpoints are left out.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from canary.config.config import RunConfig, config_from_dict, config_to_dict, make_config
from canary.config.sources import build, source_from_dict, source_of
from canary.constraints import one_cost
from canary.environments import ENVIRONMENTS
from canary.errors import CanaryError, nearest
from canary.exact.mdp import from_environment
from canary.exact.run import policy_law
from canary.runs import directory
from canary.runs.environment import is_ours
from canary.runs.files import digest_of, make_folder, read_json, remove_orphans
from canary.runs.manifest import codes_of, read_manifest
from canary.runs.policies import EvaluationPlan, FrozenPolicies, load_policies, play
from canary.runs.runner import resume_run, start_run
from canary.runs.tables import read_table
from canary.studies import store
from canary.studies.catalogue import Row, Study
from canary.studies.page import Paths, save_views
from canary.terminal.console import counting_bar

WITHOUT_INFLUENCE = ("seeds", "chunk", "checkpoint_seconds", "seeds_per_device")
FINAL_EPISODES = 500  # of each final policy, where the environment is not finite
PAPER_SEEDS = tuple(range(30))
RETRIES = 10  # of a unit whose Ray worker died

Known = dict[int, dict[str, Any]]
Results = tuple[Known, tuple[Any, Any], int]
"""What is known of each seed, its tables of episodes and metrics, and its steps."""
Stored = Callable[[int, RunConfig, Results], None]
Engine = Callable[[list[RunConfig], list[Path], Stored], None]
"""Trains the seeds of each configuration in its place, and hands each over as it is finished."""


# What is trained


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where runs and results go."""

    runs: Path
    results: Path


@dataclass(frozen=True, kw_only=True)
class Request:
    """How much of a study is wanted; None: as the study says."""

    seeds: int | tuple[int, ...] | None = None
    """How many, from the row's first on, or which."""
    steps: int | None = None
    preset: str | None = None
    scale: Literal["cpu", "paper"] = "cpu"
    """`paper`: the `paper` preset, its steps, and 30 seeds."""
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Planned:
    """A row and its configuration."""

    row: Row
    config: RunConfig
    is_wanted: bool
    also: tuple[str, ...] = ()
    """Other rows that the request gives the same settings."""

    @property
    def about(self) -> str:
        """What the row says of itself, or the preset that was asked for in its place."""
        if self.config.preset == self.row.preset:
            return self.row.about
        return ", ".join((f"the `{self.config.preset}` preset", *self.row.overrides))


def planned(name: str, study: Study, request: Request) -> list[Planned]:
    """All rows of a study; those that the request gives the same settings are one."""
    known = [row.name for row in study.rows]
    for wanted in request.only:
        if wanted not in known:
            raise CanaryError(f"The study {name} has no row {wanted!r}{nearest(wanted, known)}")
    rows: dict[str, Planned] = {}
    for row in sorted(study.rows, key=lambda row: row.name not in request.only):
        is_wanted = not request.only or row.name in request.only
        config = configuration(row, request if is_wanted else Request())
        same = rows.get(settings_of(config))
        if same is None:
            rows[settings_of(config)] = Planned(row, config, is_wanted)
        else:
            longer = len(config.training.seeds) > len(same.config.training.seeds)
            seeds = (config if is_wanted and longer else same.config).training.seeds
            rows[settings_of(config)] = replace(
                same, config=with_seeds(same.config, seeds), also=(*same.also, row.name)
            )
    return sorted(rows.values(), key=lambda one: known.index(one.row.name))


def configuration(row: Row, request: Request | None = None) -> RunConfig:
    request = request or Request()
    at_paper_scale = request.scale == "paper"
    stated = None if at_paper_scale else row.steps
    steps = stated if request.steps is None else request.steps
    overrides = row.overrides + (() if steps is None else (f"training.total_steps={steps}",))
    return make_config(
        row.environment,
        row.algorithm,
        row.constraint or None,
        request.preset or ("paper" if at_paper_scale else row.preset),
        overrides,
        row.cost,
        seeds=chosen_seeds(request.seeds, PAPER_SEEDS if at_paper_scale else tuple(row.seeds)),
    )


def chosen_seeds(wanted: int | tuple[int, ...] | None, stated: tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(wanted, int):
        return tuple(range(stated[0], stated[0] + wanted))
    return stated if wanted is None else wanted


def reproduce(
    name: str,
    study: Study,
    places: Places,
    request: Request | None = None,
    *,
    engine: Engine | None = None,
    quiet: bool = False,
) -> Paths:
    """Train what is missing; returns the paths of the table and the figure by label."""
    request = request or Request()
    if not study.rows:
        return _reproduce_points(name, study, places.results / name, request, quiet)
    home = study.units_of or name
    rows = planned(name, study, request)
    folders = [folder_of(places.results, home, one) for one in rows]
    write_study(places.results / name, name, study, rows, folders)
    todo: list[RunConfig] = []
    where: list[Path] = []
    for one, folder in zip(rows, folders, strict=True):
        missing = _missing(one.config, folder) if one.is_wanted else ()
        if missing:
            todo.append(with_seeds(one.config, missing))
            where.append(folder)

    def stored(index: int, config: RunConfig, results: Results) -> None:
        known, tables, steps = results
        store.add(where[index], config_to_dict(config), tables, steps, known)

    runs = [places.runs / folder.parent.name / folder.name for folder in where]
    (engine or local_engine(quiet))(todo, runs, stored)
    return save_views(places.results / name)


def folder_of(results: Path, home: str, one: Planned) -> Path:
    """The folder that holds the row's settings, in its own study or in another; else a free one."""
    wanted = settings_of(one.config)
    plain = results / home / one.row.name
    beside = results / home / f"{one.row.name}-{wanted[:8]}"
    others = (path.parent for path in sorted(results.glob("*/*/row.json")))
    for folder in (plain, beside, *others):
        try:
            record = store.read_row(folder)
        except CanaryError:  # the view names it; a row of this name stays where it is
            if folder == plain:
                return plain
            continue
        if record is not None and stored_settings(record["config"]) == wanted:
            return folder
    return beside if (plain / "row.json").exists() else plain


def _missing(config: RunConfig, folder: Path) -> tuple[int, ...]:
    """The seeds to train; none of a row that is damaged, which stays as it is."""
    remove_orphans(folder)
    try:
        have = store.stored_seeds(folder)
    except CanaryError:
        return ()
    return tuple(seed for seed in config.training.seeds if seed not in have)


def write_study(
    folder: Path, name: str, study: Study, rows: list[Planned], folders: list[Path]
) -> None:
    """Write study.json: all that a view needs besides the rows themselves."""
    make_folder(folder)
    described = [
        {
            "row": one.row.name,
            "about": one.about,
            "folder": place.name if place.parent == folder else f"../{place.parent.name}/{place.name}",
            "environment": one.config.environment_name,
            "algorithm": one.config.algorithm_name,
            "preset": one.config.preset,
            "overrides": list(one.row.overrides),
            "seeds": list(one.config.training.seeds),
            "also": list(one.also),
            "paper": one.row.paper,
        }
        for one, place in zip(rows, folders, strict=True)
    ]  # fmt: skip
    content = {"name": name, "title": study.title, "view": study.view, "rows": described}
    store.write_sealed(folder / "study.json", content | {"command": study.command})


def _reproduce_points(
    name: str, study: Study, folder: Path, request: Request, quiet: bool
) -> Paths:
    """A study without rows, whose module computes its points."""
    from canary.studies.paper import variance_points, worst_case

    module = {"relative-variance": variance_points, "worst-case": worst_case}[study.view]
    for wanted in request.only:
        if wanted not in module.PARTS:
            known = nearest(wanted, module.PARTS)
            raise CanaryError(f"The study {name} has no part {wanted!r}{known}")
    for option, value in (("--steps", request.steps), ("--preset", request.preset)):
        if value is not None:
            raise CanaryError(f"{name} has no rows to train, so it has no {option}.")
    stated = PAPER_SEEDS if request.scale == "paper" else module.SEEDS
    seeds = chosen_seeds(request.seeds, stated)
    make_folder(folder)
    content = {"name": name, "title": study.title, "view": study.view, "rows": []}
    shown = {} if request.only else {"seeds": list(seeds)}
    store.write_sealed(folder / "study.json", content | shown)
    with counting_bar("points", quiet=quiet) as progress:
        module.complete(folder, seeds, request.only, progress)
    return save_views(folder)


# How it is trained


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
    place = {name: plain["environment"][name] for name in ("name", "settings")}
    settings = {k: v for k, v in plain.items() if k != "preset"}
    return digest_of(settings | {"environment": place, "training": training})


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
            source = None if is_ours(config.environment) else _source(config)
            for seed in config.training.seeds:
                plain = config_to_dict(with_seeds(config, (seed,)))
                unit = task.remote(plain, source, str(place.resolve() / f"seed-{seed}"))
                waiting[unit] = index, f"{place.name}, seed {seed}"
        total = len(waiting)
        try:
            with counting_bar("units", quiet=quiet) as progress:
                progress(0, total, "waiting for the first unit")
                while waiting:
                    done, _ = ray.wait(list(waiting), num_returns=1)
                    index, label = waiting.pop(done[0])
                    for seeds, results in _unit(ray, done[0], label):
                        stored(index, with_seeds(configs[index], seeds), results)
                    progress(total - len(waiting), total, label)
        finally:
            for unit in waiting:
                ray.cancel(unit, force=True)

    return train


def _source(config: RunConfig) -> dict[str, Any]:
    """How a Ray worker makes an environment that is not ours."""
    source = source_of(config.environment)
    if source is None:
        raise CanaryError(
            f"The nodes of a cluster cannot import {config.environment_name}; put it into a module."
        )
    return source.to_dict()


def _train_unit(
    plain: dict[str, Any], source: dict[str, Any] | None, place: str
) -> list[tuple[tuple[int, ...], Results]]:
    """What a Ray worker does: one seed, in a directory that it may share with others."""
    environment = None if source is None else build(source_from_dict(source))
    config = config_from_dict(plain, environment)
    found = _finished_runs(config, Path(place), quiet=True, leave_running=True)
    return [(part.training.seeds, results_of(part, run)) for part, run in found]


def _unit(ray: Any, unit: Any, label: str) -> list[tuple[tuple[int, ...], Results]]:
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
            environment = None if is_ours(config.environment) else config.environment
            resumed = resume_run(run, environment=environment, quiet=quiet)
            yield with_seeds(config, seeds), _finished(resumed)
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
            stored = read_json(Path(row.path) / "config.json")
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
    tables = read_table(run, "episodes"), read_table(run, "metrics")
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
