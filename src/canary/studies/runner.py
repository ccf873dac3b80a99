"""`canary reproduce` and `canary sweep`: train the seeds of a study that the store lacks, on this
machine or over a Ray cluster.

    RUNS/STUDY/ROW/    the runs; interrupted ones continue, finished ones are not trained again
    RESULTS/STUDY/     the store (`studies.store`), and the study's table and figure

A stored row is found by its settings, also in the folder of another study. Settings are equal if
they give equal numbers: seeds, the name of the preset and the sizes of programs and checkpoints do
not count.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from canary.config.config import make_config
from canary.config.run_config import RunConfig, config_from_dict, config_to_dict
from canary.config.sources import Source, build, source_of
from canary.constraints import one_cost
from canary.environments import ENVIRONMENTS
from canary.errors import CanaryError, nearest
from canary.exact.mdp import from_environment
from canary.exact.run import policy_law
from canary.reporting.results import Results, of_run
from canary.runs import directory
from canary.runs.directory import read_manifest
from canary.runs.environment import is_ours, open_config
from canary.runs.files import digest_of, make_folder, read_sealed, write_sealed
from canary.runs.policies import EvaluationPlan, FrozenPolicies, load_policies, play
from canary.runs.runner import new_run, train_run
from canary.studies import store
from canary.studies.catalogue import Row, Study
from canary.studies.table import VIEWS, save_views
from canary.terminal.console import counting_bar

WITHOUT_INFLUENCE = ("seeds", "chunk", "checkpoint_seconds", "seeds_per_device")
FINAL_EPISODES = 500  # per final policy, if the environment is not finite
PAPER_SEEDS = range(30)
RETRIES = 10  # per seed, after its Ray worker died


@dataclass(frozen=True, kw_only=True)
class Places:
    """Folders of runs and results."""

    runs: Path
    results: Path


@dataclass(frozen=True, kw_only=True)
class Request:
    """Choices that replace those of a study; None keeps the study's."""

    seeds: int | tuple[int, ...] | None = None
    """A number, from the row's first seed on, or a list."""
    steps: int | None = None
    preset: str | None = None
    scale: Literal["cpu", "paper"] = "cpu"
    """`paper`: the `paper` preset, its steps, and 30 seeds."""
    only: tuple[str, ...] = ()

    def chosen_seeds(self, stated: Sequence[int]) -> tuple[int, ...]:
        stated = PAPER_SEEDS if self.scale == "paper" else stated
        if isinstance(self.seeds, int):
            return tuple(range(stated[0], stated[0] + self.seeds))
        return tuple(stated) if self.seeds is None else self.seeds

    def row(self, row: Row) -> Row:
        """The row with these choices."""
        at_paper_scale = self.scale == "paper"
        stated = None if at_paper_scale else row.steps
        preset = self.preset or ("paper" if at_paper_scale else row.preset)
        if preset != row.preset:
            row = replace(row, about=", ".join((f"the `{preset}` preset", *row.overrides)))
        seeds, steps = self.chosen_seeds(row.seeds), stated if self.steps is None else self.steps
        return replace(row, preset=preset, seeds=seeds, steps=steps)

    def check_names(self, study: str, known: Collection[str]) -> None:
        for name in self.only:
            if name not in known:
                raise CanaryError(f"The study {study} has no row {name!r}{nearest(name, known)}")


class Unit(NamedTuple):
    """Seeds of one row to train, with their folders of runs and results."""

    config: RunConfig
    runs: Path
    folder: Path


# The seeds to train


def reproduce(
    name: str,
    study: Study,
    places: Places,
    request: Request | None = None,
    *,
    engine: Literal["local", "ray"] = "local",
    quiet: bool = False,
) -> dict[str, Path]:
    """Train the missing seeds. Returns the paths of the table and the figure by label."""
    request, page = request or Request(), places.results / name
    if not study.rows:
        return _reproduce_points(name, study, page, request, quiet)
    request.check_names(name, [row.name for row in study.rows])
    stored = {path.parent: read_sealed(path) for path in places.results.glob("*/*/row.json")}
    settings_in = {folder: settings_of(stored[folder]["config"]) for folder in sorted(stored)}
    seeds_in = {folder: set(map(int, stored[folder]["seeds"])) for folder in stored}
    units, rows = [], []
    for stated in study.rows:
        is_wanted = not request.only or stated.name in request.only
        row = request.row(stated) if is_wanted else stated
        config = configuration(row)
        settings = settings_of(config_to_dict(config))
        own = places.results / (study.units_of or name) / row.name
        folder = _folder_of(own, settings, settings_in)
        settings_in[folder] = settings  # rows with equal settings share a folder
        rows.append(_described(row, config, folder, page))
        have = seeds_in.setdefault(folder, set())
        missing = [seed for seed in config.training.seeds if seed not in have]
        if is_wanted and missing:
            have.update(missing)
            runs = places.runs / folder.parent.name / folder.name
            units.append(Unit(with_seeds(config, missing), runs, folder))
    _write_study(page, name, study, rows)
    train = _over_ray if engine == "ray" else _on_this_machine
    for folder, results in train(units, quiet):
        store.add(folder, results)
    return save_views(page)


def configuration(row: Row) -> RunConfig:
    config = make_config(
        row.environment,
        row.algorithm,
        row.constraint or None,
        row.preset,
        row.overrides + (() if row.steps is None else (f"training.total_steps={row.steps}",)),
        row.cost,
        seeds=tuple(row.seeds),
    )
    one_cost(config.constraint, "A study")
    return config


def with_seeds(config: RunConfig, seeds: Iterable[int]) -> RunConfig:
    return replace(config, training=replace(config.training, seeds=tuple(seeds)))


def settings_of(config: dict[str, Any]) -> str:
    """A digest of a stored configuration; configurations with equal numbers have equal digests.
    Settings that an older version lacked have their defaults."""
    if config["environment"]["name"] in ENVIRONMENTS:  # opening others would run the user's code
        with suppress(CanaryError):  # this version cannot read it, so no row equals it
            config = config_to_dict(config_from_dict(config))
    training = {k: v for k, v in config["training"].items() if k not in WITHOUT_INFLUENCE}
    place = {name: config["environment"][name] for name in ("name", "settings")}
    settings = {k: v for k, v in config.items() if k != "preset"}
    return digest_of(settings | {"environment": place, "training": training})


def _folder_of(own: Path, settings: str, settings_in: dict[Path, str]) -> Path:
    """The folder with these settings, in this study or another; else a free one."""
    beside = own.with_name(f"{own.name}-{settings[:8]}")
    for folder in (own, beside, *settings_in):
        if settings_in.get(folder) == settings:
            return folder
    return beside if own in settings_in else own


def _described(row: Row, config: RunConfig, folder: Path, page: Path) -> dict[str, Any]:
    """The entry of a row in study.json."""
    is_own = folder.parent == page
    return {
        "row": row.name,
        "about": row.about,
        "folder": folder.name if is_own else f"../{folder.parent.name}/{folder.name}",
        "environment": config.environment_name,
        "algorithm": config.algorithm_name,
        "preset": config.preset,
        "overrides": list(row.overrides),
        "seeds": list(config.training.seeds),
        "paper": row.paper,
    }


def _write_study(folder: Path, name: str, study: Study, rows: list[dict[str, Any]]) -> None:
    """Write study.json, which a view needs besides the results."""
    make_folder(folder)
    content = {"name": name, "title": study.title, "view": study.view, "rows": rows}
    write_sealed(folder / "study.json", content | {"command": study.command})


def _reproduce_points(
    name: str, study: Study, folder: Path, request: Request, quiet: bool
) -> dict[str, Path]:
    """Compute the missing points of a study without rows."""
    module = import_module(VIEWS[study.view])
    request.check_names(name, module.PARTS)
    for option, value in (("--steps", request.steps), ("--preset", request.preset)):
        if value is not None:
            raise CanaryError(f"{name} has no rows to train, so it has no {option}.")
    _write_study(folder, name, study, [])
    known = store.read_points(folder)
    todo = module.missing(known, request.chosen_seeds(module.SEEDS), request.only)
    with counting_bar("points", quiet=quiet) as progress:
        for done, (point, compute) in enumerate(todo):  # stored one by one
            progress(done, len(todo), point)
            known += compute()
            write_sealed(folder / "points.json", {"points": known})
    return save_views(folder)


# Training of the seeds

Trained = Iterator[tuple[Path, Results]]
"""Yields the folder of a unit and results of its seeds as they finish."""


def _on_this_machine(units: list[Unit], quiet: bool) -> Trained:
    """Train one row after the other; the seeds of a row share the cores."""
    for unit in units:
        for results in _finished_runs(unit.config, unit.runs, quiet=quiet):
            yield unit.folder, results


def _over_ray(units: list[Unit], quiet: bool) -> Trained:
    """Train with one task per seed, on the cluster of RAY_ADDRESS, one on this machine, or a new one.

    If a worker or node dies, its seed is trained elsewhere. It continues from its last checkpoint
    if the nodes share the directory of runs. Its numbers are the same as on this machine.
    """
    try:
        import ray
    except ImportError:
        raise CanaryError("--engine ray needs Ray: pip install 'canary-rl[ray]'.") from None
    if not units:
        return
    ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    task = ray.remote(max_retries=RETRIES, num_cpus=1)(_train_seed)
    waiting: dict[Any, tuple[Path, Path]] = {}
    for config, runs, folder in units:
        source = _source(config)
        for seed in config.training.seeds:
            place = runs.resolve() / f"seed-{seed}"
            plain = config_to_dict(with_seeds(config, (seed,)))
            waiting[task.remote(plain, source, place)] = folder, place
    total = len(waiting)
    try:
        with counting_bar("units", quiet=quiet) as progress:
            progress(0, total, "waiting for the first unit")
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                folder, place = waiting.pop(done)
                try:
                    trained = ray.get(done)
                except ray.exceptions.RayError as error:  # from the task or its worker
                    reason = getattr(error, "cause", None) or str(error).strip().partition("\n")[0]
                    raise CanaryError(f"{place} failed: {reason}") from error
                yield from ((folder, results) for results in trained)
                progress(total - len(waiting), total, f"{place.parent.name}, {place.name}")
    finally:
        for one in waiting:
            ray.cancel(one, force=True)


def _source(config: RunConfig) -> Source | None:
    """The reference by which a Ray worker makes an environment that is not ours."""
    if is_ours(config.environment):
        return None
    source = source_of(config.environment)
    if source is None:
        raise CanaryError(
            f"The nodes of a cluster cannot import {config.environment_name}; put it into a module."
        )
    return source


def _train_seed(plain: dict[str, Any], source: Source | None, place: Path) -> list[Results]:
    """Train one seed in a Ray worker, in a directory that workers may share."""
    config = config_from_dict(plain, None if source is None else build(source))
    return list(_finished_runs(config, place, quiet=True, leave_running=True))


def _finished_runs(
    config: RunConfig, runs: Path, *, quiet: bool, leave_running: bool = False
) -> Iterator[Results]:
    """The results of these seeds, of runs that exist or are resumed, and of a new one for the rest.

    A run that another process seems to train is an error or, with `leave_running`, skipped: the run
    of a dead worker can look like that.
    """
    missing, skipped = set(config.training.seeds), {"failed", "unreadable"}
    if leave_running:
        skipped.add("running")
    settings = settings_of(config_to_dict(config))
    known = [row for row in directory.list_runs(runs) if row["status"] not in skipped]
    for row in sorted(known, key=lambda row: row["status"] != "finished"):  # finished first
        run, seeds = Path(row["path"]), row["config"]["training"]["seeds"]
        if missing.issuperset(seeds) and settings_of(row["config"]) == settings:
            environment = None if is_ours(config.environment) else config.environment
            train_run(run, open_config(run, environment), quiet=quiet)
            yield _results_of(with_seeds(config, seeds), run)
            missing -= set(seeds)
    if missing:
        rest = with_seeds(config, [seed for seed in config.training.seeds if seed in missing])
        run = new_run(rest, runs)
        train_run(run, rest, quiet=quiet)
        yield _results_of(rest, run)


def _results_of(config: RunConfig, run: Path) -> Results:
    """The results of a run; raises if it is not finished, as after Ctrl-C."""
    manifest = read_manifest(run)
    if manifest["status"] != "finished":
        raise KeyboardInterrupt
    (results,), final = of_run(run), final_policies(load_policies(config, run))
    seconds = manifest["train_seconds"] / len(results.seeds)
    seeds = {
        seed: one | {"final": final[seed], "train_seconds": seconds}
        for seed, one in results.seeds.items()
    }
    return replace(results, config=config_to_dict(config), seeds=seeds, costs=None)


def final_policies(policies: FrozenPolicies) -> dict[int, dict[str, Any]]:
    """The final policies: by dynamic programming in a finite environment, else on fresh episodes."""
    config = policies.config
    limit = one_cost(config.constraint, "A study").limit
    try:
        mdp = from_environment(config.environment)
    except CanaryError:
        episodes, _ = play(policies, EvaluationPlan(episodes=FINAL_EPISODES))
        over, reward = pl.col("cost").cast(float) > limit, pl.col("return").cast(float)
        counts = {"episodes": pl.len(), "violations": over.sum(), "violation": over.mean()}
        rows = episodes.group_by("seed").agg(**counts, **{"return": reward.mean()})
        return {row.pop("seed"): row for row in rows.to_dicts()}
    found = {}
    for seed in config.training.seeds:
        law = policy_law(config.environment, mdp, policies.account, *policies.of_seed(seed))
        found[seed] = {"violation": law.violation(limit), "return": law.expected_return}
    return found
