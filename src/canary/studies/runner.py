"""`canary reproduce` and `canary sweep`: train the seeds of a study that the store does not have.

RUNS/STUDY/ROW/    the runs; a stopped one continues, a finished one is not trained again
RESULTS/STUDY/     the store (`studies.store`), and the study's table and figure

The unit of work is one seed of one row. A row is found again by its settings, also in the folder of
another study. Settings are the same if they give the same numbers: the seeds, the name of the preset
and the sizes of programs and checkpoints are left out.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from canary.config.config import RunConfig, config_to_dict, make_config
from canary.errors import CanaryError, nearest
from canary.runs.files import make_folder, remove_orphans
from canary.studies import store
from canary.studies.catalogue import Row, Study
from canary.studies.engines import (
    Engine,
    Results,
    local_engine,
    settings_of,
    stored_settings,
    with_seeds,
)
from canary.studies.page import Paths, save_views
from canary.terminal.bars import counting_bar

PAPER_SEEDS = tuple(range(30))


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
    constraint = tuple(f"constraint.{name}={value}" for name, value in row.constraint.items())
    return make_config(
        row.environment,
        row.algorithm,
        None,
        request.preset or ("paper" if at_paper_scale else row.preset),
        constraint + overrides,
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
            "paper": None if one.row.paper is None else asdict(one.row.paper),
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
