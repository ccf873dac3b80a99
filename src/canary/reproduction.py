"""Train the variants of a study and keep what its table and figure are made of.

RUNS/STUDY/VARIANT/      the run itself; a stopped one is resumed, a finished one is not trained again
RESULTS/STUDY/VARIANT/   config.json, summary.json, exact.json, episodes.parquet: small enough to keep for ever
RESULTS/STUDY/           table.md, table.csv, study.png, all made from the files above
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canary.errors import CanaryError
from canary.experiments import storage
from canary.experiments.config import RunConfig, config_to_dict, make_config
from canary.experiments.frontiers import finite_process, policy_law
from canary.experiments.frozen import load_policies
from canary.experiments.manifest import read_manifest
from canary.experiments.runner import resume_run, start_run
from canary.experiments.settings import nearest
from canary.experiments.studies import Study, Variant
from canary.reporting.study import save_study
from canary.reporting.summary import summarise_run


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a study's runs and its results go."""

    runs: Path
    results: Path


def reproduce(
    name: str, study: Study, places: Places, *, only: Sequence[str] = (), quiet: bool = False
) -> dict[str, Path]:
    """Train what is missing of a study (or of `only` some variants) and write its table and figure."""
    known = [variant.name for variant in study.variants]
    for wanted in only:
        if wanted not in known:
            raise CanaryError(f"The study {name} has no variant {wanted!r}{nearest(wanted, known)}")
    results = places.results / name
    for variant in study.variants:
        if not only or variant.name in only:
            _finish_variant(variant, study, places.runs / name / variant.name, results / variant.name, quiet)
    return save_study(study, results)


def configuration(variant: Variant, study: Study) -> RunConfig:
    overrides = (*variant.overrides, f"training.total_steps={study.total_steps}")
    return make_config(
        study.environment, variant.algorithm, None, variant.preset, overrides, seeds=study.seeds
    )


def _finish_variant(variant: Variant, study: Study, runs: Path, result: Path, quiet: bool) -> None:
    config = configuration(variant, study)
    plain = config_to_dict(config)
    if (result / "summary.json").exists() and storage.read_json(result / "config.json") == plain:
        return
    run = _existing(runs, plain)
    run = start_run(config, runs, quiet=quiet) if run is None else resume_run(run, quiet=quiet)
    if read_manifest(run)["status"] != "finished":
        raise KeyboardInterrupt
    result.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run / "episodes.parquet", result / "episodes.parquet")
    storage.write_json(result / "config.json", plain)
    exact = _exact(config, run)
    if exact is not None:
        storage.write_json(result / "exact.json", exact)
    summary = summarise_run(run)
    del summary["run_dir"]  # a place on one machine
    storage.write_json(result / "summary.json", summary)


def _existing(runs: Path, config: dict[str, Any]) -> Path | None:
    """The newest run of exactly this configuration, if there is one."""
    for row in storage.list_runs(runs):
        path = Path(row.path)
        if storage.read_json(path / "config.json") == config:
            return path
    return None


def _exact(config: RunConfig, run: Path) -> dict[str, Any] | None:
    """Violation probability and return of every final policy by dynamic programming, where the environment is finite."""
    try:
        mdp = finite_process(config.environment)
    except CanaryError:
        return None
    policies = load_policies(config, run)
    limit = config.constraint.limit
    laws = [
        policy_law(config.environment, mdp, limit, *policies.of_seed(seed)) for seed in config.training.seeds
    ]
    return {
        "violation_per_seed": [law.violation(limit) for law in laws],
        "return_per_seed": [law.expected_return for law in laws],
        "cost_mean_per_seed": [law.mean for law in laws],
        "cost_deviation_per_seed": [law.variance**0.5 for law in laws],
    }
