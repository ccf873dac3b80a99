"""`canary reproduce` and `canary sweep`: train the seeds of a study that the store does not have, on
this machine or over a Ray cluster.

    RUNS/STUDY/ROW/    the runs; an interrupted one continues, a finished one is not trained again
    RESULTS/STUDY/     the store (`studies.store`), and the study's table and figure

A row is found again by its settings, also in the folder of another study. Settings are the same if
they give the same numbers: the seeds, the name of the preset and the sizes of programs and
checkpoints do not count.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

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
from canary.studies.page import VIEWS, Paths, save_views
from canary.terminal.console import counting_bar

WITHOUT_INFLUENCE = ("seeds", "chunk", "checkpoint_seconds", "seeds_per_device")
FINAL_EPISODES = 500  # of each final policy, where the environment is not finite
PAPER_SEEDS = tuple(range(30))
RETRIES = 10  # of a seed whose Ray worker died

Known = dict[int, dict[str, Any]]


class Unit(NamedTuple):
    """Seeds of one row that are to be trained: where, and where their results go."""

    config: RunConfig
    runs: Path
    folder: Path


class Results(NamedTuple):
    """What the store needs of a finished run."""

    config: dict[str, Any]
    tables: tuple[pl.DataFrame, pl.DataFrame]
    """Episodes and metrics."""
    steps: int
    known: Known


Engine = Callable[[list[Unit]], Iterator[tuple[Unit, Results]]]
"""Trains units and yields the results of their seeds as they are finished."""


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

    def chosen_seeds(self, stated: Sequence[int]) -> tuple[int, ...]:
        stated = PAPER_SEEDS if self.scale == "paper" else tuple(stated)
        if isinstance(self.seeds, int):
            return tuple(range(stated[0], stated[0] + self.seeds))
        return stated if self.seeds is None else self.seeds

    def check_names(self, study: str, known: Sequence[str]) -> None:
        for name in self.only:
            if name not in known:
                raise CanaryError(f"The study {study} has no row {name!r}{nearest(name, known)}")


@dataclass(frozen=True)
class Planned:
    """A row and its configuration."""

    row: Row
    config: RunConfig
    is_wanted: bool
    also: list[str] = field(default_factory=list)
    """Other rows that the request gives the same settings."""

    def described(self, folder: str) -> dict[str, Any]:
        """Its entry in study.json."""
        row, config, about = self.row, self.config, self.row.about
        if config.preset != row.preset:
            about = ", ".join((f"the `{config.preset}` preset", *row.overrides))
        return {
            "row": row.name,
            "about": about,
            "folder": folder,
            "environment": config.environment_name,
            "algorithm": config.algorithm_name,
            "preset": config.preset,
            "overrides": list(row.overrides),
            "seeds": list(config.training.seeds),
            "also": self.also,
            "paper": row.paper,
        }


def planned(name: str, study: Study, request: Request) -> list[Planned]:
    """All rows of a study; those that the request gives the same settings are one."""
    known = [row.name for row in study.rows]
    request.check_names(name, known)
    rows: dict[str, Planned] = {}
    for row in sorted(study.rows, key=lambda row: row.name not in request.only):
        is_wanted = not request.only or row.name in request.only
        config = configuration(row, request if is_wanted else Request())
        one = Planned(row, config, is_wanted)
        same = rows.setdefault(settings_of(config), one)
        if same is not one:
            same.also.append(row.name)
    return sorted(rows.values(), key=lambda one: known.index(one.row.name))


def configuration(row: Row, request: Request | None = None) -> RunConfig:
    request = request or Request()
    at_paper_scale = request.scale == "paper"
    stated = None if at_paper_scale else row.steps
    steps = stated if request.steps is None else request.steps
    return make_config(
        row.environment,
        row.algorithm,
        row.constraint or None,
        request.preset or ("paper" if at_paper_scale else row.preset),
        row.overrides + (() if steps is None else (f"training.total_steps={steps}",)),
        row.cost,
        seeds=request.chosen_seeds(row.seeds),
    )


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
    request, page = request or Request(), places.results / name
    if not study.rows:
        return _reproduce_points(name, study, page, request, quiet)
    units, rows = [], []
    for one in planned(name, study, request):
        folder = folder_of(places.results, study.units_of or name, one.row.name, one.config)
        is_own = folder.parent == page
        rows.append(
            one.described(folder.name if is_own else f"../{folder.parent.name}/{folder.name}")
        )
        if one.is_wanted and (missing := _missing(one.config, folder)):
            runs = places.runs / folder.parent.name / folder.name
            units.append(Unit(with_seeds(one.config, missing), runs, folder))
    _write_study(page, name, study, rows, command=study.command)
    for unit, results in (engine or local_engine(quiet))(units):
        store.add(unit.folder, *results)
    return save_views(page)


def _write_study(
    folder: Path, name: str, study: Study, rows: list[dict[str, Any]], **more: Any
) -> None:
    """Write study.json: all that a view needs besides the results."""
    make_folder(folder)
    content = {"name": name, "title": study.title, "view": study.view, "rows": rows}
    store.write_sealed(folder / "study.json", content | more)


def folder_of(results: Path, study: str, row: str, config: RunConfig) -> Path:
    """The folder that holds these settings, of its own study or another; else a free one."""
    wanted = settings_of(config)
    plain, beside = results / study / row, results / study / f"{row}-{wanted[:8]}"
    others = (path.parent for path in sorted(results.glob("*/*/row.json")))
    for folder in (plain, beside, *others):
        try:
            record = store.read_row(folder)
        except CanaryError:  # damaged: the table names it
            if folder == plain:
                return plain
            continue
        if record is not None and stored_settings(record["config"]) == wanted:
            return folder
    return beside if (plain / "row.json").exists() else plain


def _missing(config: RunConfig, folder: Path) -> tuple[int, ...]:
    """The seeds to train; none of a damaged row, which stays as it is."""
    remove_orphans(folder)
    try:
        have = store.stored_seeds(folder)
    except CanaryError:
        return ()
    return tuple(seed for seed in config.training.seeds if seed not in have)


def _reproduce_points(
    name: str, study: Study, folder: Path, request: Request, quiet: bool
) -> Paths:
    """A study without rows, whose module computes its points."""
    module = import_module(VIEWS[study.view])
    request.check_names(name, module.PARTS)
    for option, value in (("--steps", request.steps), ("--preset", request.preset)):
        if value is not None:
            raise CanaryError(f"{name} has no rows to train, so it has no {option}.")
    seeds = request.chosen_seeds(module.SEEDS)
    _write_study(folder, name, study, [], **({} if request.only else {"seeds": list(seeds)}))
    with counting_bar("points", quiet=quiet) as progress:
        module.complete(folder, seeds, request.only, progress)
    return save_views(folder)


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


# How it is trained


def engine_named(name: str, quiet: bool) -> Engine:
    return ray_engine(quiet) if name == "ray" else local_engine(quiet)


def local_engine(quiet: bool) -> Engine:
    """One row after the other; its seeds share the cores of this machine."""

    def train(units: list[Unit]) -> Iterator[tuple[Unit, Results]]:
        for unit in units:
            for results in _finished_runs(unit.config, unit.runs, quiet=quiet):
                yield unit, results

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

    def train(units: list[Unit]) -> Iterator[tuple[Unit, Results]]:
        if not units:
            return
        ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
        task = ray.remote(max_retries=RETRIES, num_cpus=1)(_train_seed)
        waiting: dict[Any, tuple[Unit, str]] = {}
        for unit in units:
            source = _source(unit.config)
            for seed in unit.config.training.seeds:
                plain = config_to_dict(with_seeds(unit.config, (seed,)))
                place = str(unit.runs.resolve() / f"seed-{seed}")
                waiting[task.remote(plain, source, place)] = unit, f"{unit.runs.name}, seed {seed}"
        total = len(waiting)
        try:
            with counting_bar("units", quiet=quiet) as progress:
                progress(0, total, "waiting for the first unit")
                while waiting:
                    (done,), _ = ray.wait(list(waiting), num_returns=1)
                    unit, label = waiting.pop(done)
                    yield from ((unit, results) for results in _result(ray, done, label))
                    progress(total - len(waiting), total, label)
        finally:
            for one in waiting:
                ray.cancel(one, force=True)

    return train


def _source(config: RunConfig) -> dict[str, Any] | None:
    """How a Ray worker makes an environment that is not ours."""
    if is_ours(config.environment):
        return None
    source = source_of(config.environment)
    if source is None:
        raise CanaryError(
            f"The nodes of a cluster cannot import {config.environment_name}; put it into a module."
        )
    return source.to_dict()


def _train_seed(plain: dict[str, Any], source: dict[str, Any] | None, place: str) -> list[Results]:
    """What a Ray worker does: one seed, in a directory that it may share with others."""
    environment = None if source is None else build(source_from_dict(source))
    config = config_from_dict(plain, environment)
    return list(_finished_runs(config, Path(place), quiet=True, leave_running=True))


def _result(ray: Any, task: Any, label: str) -> list[Results]:
    try:
        return ray.get(task)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, CanaryError):
            raise CanaryError(str(error.cause)) from error
        raise CanaryError(f"{label} failed: {error.cause!r}") from error
    except ray.exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0]
        raise CanaryError(f"{label} failed after {RETRIES} retries ({reason}).") from error


def _finished_runs(
    config: RunConfig, runs: Path, *, quiet: bool, leave_running: bool = False
) -> Iterator[Results]:
    """The results of these seeds, of runs that exist or are resumed, and of a new one for the rest.

    A run that seems to be running elsewhere is an error or, with `leave_running`, left alone: a
    worker that died looks like that.
    """
    missing = set(config.training.seeds)
    for run, seeds in _runs_of(config, runs):
        if leave_running and read_manifest(run)["status"] == "running":
            continue
        if set(seeds) <= missing:
            environment = None if is_ours(config.environment) else config.environment
            resumed = resume_run(run, environment=environment, quiet=quiet)
            yield results_of(with_seeds(config, seeds), resumed)
            missing -= set(seeds)
    if missing:
        rest = with_seeds(config, [seed for seed in config.training.seeds if seed in missing])
        yield results_of(rest, start_run(rest, runs, quiet=quiet))


def _runs_of(config: RunConfig, runs: Path) -> list[tuple[Path, tuple[int, ...]]]:
    """The runs below `runs` with these settings, and their seeds; finished ones first, then the
    newest."""
    wanted, found = settings_of(config), []
    for row in directory.list_runs(runs):
        if row["status"] not in ("failed", "unreadable"):
            stored = read_json(Path(row["path"]) / "config.json")
            if stored_settings(stored) == wanted:
                seeds = tuple(stored["training"]["seeds"])
                found.append((row["status"] != "finished", Path(row["path"]), seeds))
    return [(path, seeds) for _, path, seeds in sorted(found, key=lambda item: item[0])]


def results_of(config: RunConfig, run: Path) -> Results:
    """The results of a run, which must be finished: after Ctrl-C it is not."""
    manifest = read_manifest(run)
    if manifest["status"] != "finished":
        raise KeyboardInterrupt
    seeds, seconds = config.training.seeds, manifest.get("train_seconds")
    origin = {
        "code": codes_of(manifest),
        "versions": manifest.get("versions", {}),
        "train_seconds": None if seconds is None else seconds / len(seeds),
    }
    final = final_policies(config, run)
    known = {seed: {"final": final.get(seed), **origin} for seed in seeds}
    tables = read_table(run, "episodes"), read_table(run, "metrics")
    return Results(config_to_dict(config), tables, int(manifest["steps"]), known)


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
