"""The summary is a function of the stored files: hand-made runs with hand-computed numbers."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from canary.reporting.summary import summarise_evaluation, summarise_run
from canary.runs import directory
from canary.runs.directory import update_manifest
from canary.runs.tables import COLUMNS, write_table

CONFIG = {
    "environment": {"name": "IcyLake", "settings": {}},
    "algorithm": {"name": "canary", "settings": {}},
    "constraint": {"kind": "chance", "limit": 5.5, "epsilon": 0.25},
    "training": {"seeds": [3, 5, 9], "environments": 2, "rollout_length": 50},
    "preset": "fast",
}
# seed, iteration, return, cost, length, valid. Four updates are done: iterations 2 and 3 count.
EPISODES = [
    (3, 1, 9.0, 99.0, 10, True),
    (3, 2, 1.0, 5.5, 10, True),
    (3, 2, 0.0, 6.0, 20, True),
    (3, 3, 1.0, 0.5, 30, True),
    (3, 3, 1.0, 0.0, 40, True),
    (5, 2, 1.0, 7.0, 10, True),
    (5, 3, 7.0, 0.0, 10, False),
    (5, 3, 0.0, 1.0, 10, True),
    (5, 4, 5.0, 1.0, 10, True),  # written just before a kill: its checkpoint never was
    (9, 3, 5.0, 1.0, 10, False),
]


def make_run(root, config: dict[str, Any] = CONFIG, steps: int = 400) -> Path:
    run = directory.create(root, config, 1000)
    names = ["seed", "iteration", "return", "cost", "length", "valid"]
    frame = pl.DataFrame(EPISODES, schema=names, orient="row").with_columns(
        environment=pl.lit(0), terminated=pl.lit(True)
    )
    write_table(run, "episodes", frame)
    write_table(run, "metrics", pl.DataFrame(schema=COLUMNS["metrics"]))
    update_manifest(run, steps=steps, train_seconds=6.0, wall_seconds=9.0, status="interrupted")
    return run


def test_other_constraints_are_judged_by_what_they_limit(tmp_path):
    """Costs of seed 3: 5.5, 6, 0.5, 0; of seed 5: 7 and 1."""
    mean = summarise_run(
        make_run(tmp_path, CONFIG | {"constraint": {"kind": "mean", "limit": 3.5}})
    )
    assert (mean["constraint_per_seed"], mean["constraint_value"]) == ([3.0, 4.0, None], 3.5)
    assert (mean["constraint_text"], mean["epsilon"], mean["safe_fraction"]) == (
        "mean cost <= 3.5",
        None,
        0.5,
    )
    tail = {"kind": "cvar", "limit": 6.5, "epsilon": 0.5}
    cvar = summarise_run(make_run(tmp_path, CONFIG | {"constraint": tail}))
    assert (cvar["constraint_per_seed"], cvar["safe_fraction"]) == ([5.75, 7.0, None], 0.5)
    assert cvar["constraint"] == tail
    chance = summarise_run(make_run(tmp_path))
    assert (chance["constraint"]["kind"], chance["constraint_per_seed"]) == (
        "chance",
        [0.25, 0.5, None],
    )


def test_the_second_half_of_what_was_done(tmp_path):
    run = make_run(tmp_path)
    summary = summarise_run(run)
    assert summary["episodes_per_seed"] == [4, 2, 0]
    assert summary["violation_per_seed"] == [0.25, 0.5, None]
    assert summary["return_per_seed"] == [0.75, 0.5, None]
    assert summary["cost_per_seed"] == [3.0, 4.0, None]
    assert summary["cost_deviation_per_seed"] == pytest.approx([2.7613402542968153, 3.0, None])
    assert summary["length_per_seed"] == [25.0, 10.0, None]
    # Two blocks. Seed 3: rates 1/2 and 0, variance 1/8, floor 3/32. Seed 5: 1/2 - 1/4.
    assert summary["jitter_per_seed"] == pytest.approx([(1 / 32) ** 0.5, 0.5, None])
    assert summary["violation_probability"] == 0.375
    assert summary["violation_standard_error"] == pytest.approx(0.125)
    assert summary["safe_fraction"] == 0.5
    assert summary["return_mean"] == 0.625
    assert summary["cost_mean"] == 3.5
    assert summary["steps_per_second"] == pytest.approx(400 * 3 / 6)
    known = {
        "env": "IcyLake",
        "algorithm": "canary",
        "preset": "fast",
        "limit": 5.5,
        "epsilon": 0.25,
    }
    known |= {"seeds": 3, "seed_ids": [3, 5, 9], "total_steps": 400, "planned_steps": 1000}
    known |= {"status": "interrupted", "wall_seconds": 9.0, "run_dir": str(run)}
    assert {name: summary[name] for name in known} == known
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_an_evaluation_counts_every_episode_of_the_seeds_played(tmp_path):
    run = make_run(tmp_path)
    rows = [(5, 1.0, 6.0, 4), (5, 0.0, 1.0, 6), (3, 1.0, 5.5, 10)]
    frame = pl.DataFrame(rows, schema=["seed", "return", "cost", "length"], orient="row")
    summary = summarise_evaluation(run, frame, seconds=2.0)
    assert summary["seed_ids"] == [5, 3]
    assert summary["seeds"] == 2
    assert summary["violation_per_seed"] == [0.5, 0.0]
    assert summary["violation_jitter"] is None
    assert (summary["total_steps"], summary["steps_per_second"]) == (20, 10.0)


def test_numbers_that_are_none_become_null(tmp_path):
    frame = pl.DataFrame(
        {"seed": [3], "return": [float("nan")], "cost": [float("inf")], "length": [4]}
    )
    summary = summarise_evaluation(make_run(tmp_path), frame, seconds=1.0)
    assert (summary["return_mean"], summary["cost_mean"]) == (None, None)
    assert summary["violation_probability"] == 1.0
    json.dumps(summary, allow_nan=False)
