"""`canary reproduce`: train the units of a study that are missing, keep them in the store, and show
what is there.

RUNS/STUDY/VARIANT/      the runs themselves; a stopped one goes on, a finished one is not trained again
RESULTS/STUDY/           the store (`studies.store`), study.json: which group is which row, and what the view makes of them
"""

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from canary.config.config import RunConfig
from canary.errors import CanaryError, nearest
from canary.runs import directory
from canary.runs.files import make_folder, remove_orphans
from canary.runs.manifest import read_manifest
from canary.studies import store
from canary.studies.checks import read_config, read_study
from canary.studies.data import Study
from canary.studies.plan import (
    PAPER_SEEDS,
    PlannedRow,
    Request,
    chosen_seeds,
    is_wanted,
    meaning,
    meaning_of,
    planned,
    short_key,
)
from canary.studies.rows import damage
from canary.studies.units import final_policies, finished_runs, runs_of, units_of, with_seeds
from canary.studies.views import save_views
from canary.terminal.bars import counting_bar

Trained = Callable[[int, store.Units], None]
Engine = Callable[[list[RunConfig], list[Path], Trained], None]
"""Trains the seeds of every configuration in its place and hands over the units of each, by index,
as they are finished."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a study's runs and its results go."""

    runs: Path
    results: Path


def reproduce(
    name: str,
    study: Study,
    places: Places,
    request: Request | None = None,
    *,
    engine: Engine | None = None,
    quiet: bool = False,
) -> dict[str, Path]:
    """Train what is missing and write tables and figures; returns their paths by label."""
    request = request or Request()
    if study.view == "relative-variance":
        return _reproduce_points(name, study, places.results / name, request, quiet)
    results, home = places.results / name, study.units_of or name
    rows = planned(name, study, request)
    groups = [group_for(places.results / home, row) for row in rows]
    make_folder(results)
    _write_study(results, describe(name, study, rows, groups))
    todo, where = [], []
    for row, group in zip(rows, groups, strict=True):
        if damage(group) is not None:  # it stays as it is, and the view names it
            continue
        runs = places.runs / home / group.name
        remove_orphans(group)  # of a writer that was killed when nothing else was left to write
        borrow(places.results, row.config, group)
        measure_final(row.config, group, runs)
        missing = missing_seeds(row.config, group)
        if missing and is_wanted(row.variant, request):
            todo.append(with_seeds(row.config, missing))
            where.append((group, runs))
    engine = engine or local_engine(quiet)
    engine(
        todo, [runs for _, runs in where], lambda index, units: store.add(where[index][0], units)
    )
    _write_study(results, describe(name, study, rows, groups))
    return save_views(results)


def engine_named(name: str, quiet: bool) -> Engine:
    """`local` or `ray`."""
    if name == "ray":
        from canary.studies.ray_engine import ray_engine

        return ray_engine(quiet)
    return local_engine(quiet)


def _reproduce_points(
    name: str, study: Study, results: Path, request: Request, quiet: bool
) -> dict[str, Path]:
    from canary.studies import relative_variance

    for wanted in request.only:
        if wanted not in relative_variance.CONSTRAINTS:
            known = nearest(wanted, relative_variance.CONSTRAINTS)
            raise CanaryError(f"The study {name} has no constraint {wanted!r}{known}")
    for option, value in (("--steps", request.steps), ("--preset", request.preset)):
        if value is not None:
            raise CanaryError(
                f"{name} trains no policy, so {option} has no meaning for it; --seeds and --only "
                "have."
            )
    seeds = chosen_seeds(request.seeds, PAPER_SEEDS if request.scale == "paper" else study.seeds)
    make_folder(results)
    shown = {} if request.only else {"seeds": list(seeds)}  # else constraints differ in theirs
    directory.write_json(results / "study.json", describe(name, study, [], []) | shown)
    with counting_bar("points", quiet=quiet) as progress:
        relative_variance.complete(results, seeds, request.only, progress)
    return save_views(results)


def local_engine(quiet: bool) -> Engine:
    """One setting after the other; its seeds share the cores of this machine."""

    def train(configs: list[RunConfig], runs: list[Path], trained: Trained) -> None:
        for index, (config, place) in enumerate(zip(configs, runs, strict=True)):
            for part, run in finished_runs(config, place, quiet=quiet):
                trained(index, units_of(part, run))

    return train


def group_for(results: Path, row: PlannedRow) -> Path:
    """The group of a row's settings: the one that is there, or the place of a new one beside those
    with other settings."""
    wanted = meaning(row.config)
    plain, beside = results / row.variant.name, results / f"{row.variant.name}-{short_key(wanted)}"
    for group in (plain, beside):
        if (group / "config.json").exists():
            try:
                stored = meaning_of(read_config(group))
            except CanaryError:  # it may be the same, so it is left for its owner to restore
                return group
            if stored == wanted:
                return group
    return beside if (plain / "config.json").exists() else plain


def missing_seeds(config: RunConfig, group: Path) -> tuple[int, ...]:
    have = set(store.stored_seeds(group))
    return tuple(seed for seed in config.training.seeds if seed not in have)


def measure_final(config: RunConfig, group: Path, runs: Path) -> None:
    """Measure the final policies of stored seeds whose group has none yet, if their run is still
    there."""
    have = store.stored_seeds(group)
    if not have or any((group / f"{kind}.json").exists() for kind in store.PER_SEED):
        return
    for run, seeds in runs_of(config, runs):
        if set(seeds) <= set(have) and read_manifest(run)["status"] == "finished":
            found = final_policies(with_seeds(config, seeds), run)
            store.add(group, replace(store.read_units(group).only(seeds), per_seed=found))


def borrow(results: Path, config: RunConfig, group: Path) -> None:
    """Copy units that another study has trained already: the same settings and seed are the same
    unit."""
    wanted = meaning(config)
    for other in sorted(path.parent for path in results.glob("*/*/config.json")):
        missing = missing_seeds(config, group)
        if not missing:
            return
        try:
            common = tuple(
                seed for seed in missing if other != group and seed in store.stored_seeds(other)
            )
            if (
                common
                and meaning_of(read_config(other)) == wanted
                and damage(other) is None  # else it is that study's to report
            ):
                store.add(group, store.read_units(other).only(common))
        except CanaryError:
            continue


def describe(name: str, study: Study, rows: list[PlannedRow], groups: list[Path]) -> dict[str, Any]:
    """All that the views need to know of a study: they must not need its code, nor JAX."""
    return {
        "name": name,
        "title": study.title,
        **({} if study.command is None else {"command": study.command}),
        "view": study.view,
        "rows": [
            {
                "variant": row.variant.name,
                "about": row.about,
                "group": group.name
                if study.units_of is None
                else f"../{study.units_of}/{group.name}",
                "environment": row.config.environment_name,
                "algorithm": row.config.algorithm_name,
                "preset": row.config.preset,
                "overrides": list(row.variant.overrides),
                "steps": row.config.training.updates * row.config.training.batch,
                "seeds": list(row.config.training.seeds),
                "trained": _is_trained(group),
                **({"also": list(row.also)} if row.also else {}),
                "paper": None if row.variant.paper is None else asdict(row.variant.paper),
            }
            for row, group in zip(rows, groups, strict=True)
        ],
    }


def _is_trained(group: Path) -> bool:
    """Whether a group holds seeds; one that cannot be read held some."""
    try:
        return bool(store.stored_seeds(group))
    except CanaryError:
        return True


def _write_study(results: Path, described: dict[str, Any]) -> None:
    """Write study.json. A group that was trained once stays so: if it is gone, that is told."""
    before: set[str] = set()
    with contextlib.suppress(CanaryError):  # there is none yet, or it is damaged
        before = {row["group"] for row in read_study(results)["rows"] if row.get("trained")}
    for row in described["rows"]:
        row["trained"] = row["trained"] or row["group"] in before
    directory.write_json(results / "study.json", described)
