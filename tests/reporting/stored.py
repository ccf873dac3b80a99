"""Results and runs with made-up episodes: a page can be drawn of them without training anything."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from canary.config.config import make_config
from canary.config.run_config import config_to_dict
from canary.reporting.results import of_run
from canary.runs import directory
from canary.runs.directory import update_manifest
from canary.runs.tables import write_table
from canary.studies import store

UPDATES, BATCH = 40, 1000


def tables(seeds, seed=0) -> dict[str, pl.DataFrame]:
    """Costs that fall over training, and metrics as Canary reports them."""
    rng = np.random.default_rng(seed)
    episodes, metrics = [], []
    for number in seeds:
        iteration = np.repeat(np.arange(UPDATES), 10)
        cost = rng.poisson(1 + 6 * np.exp(-iteration / 8)).astype(np.float32)
        count, update = len(cost), np.arange(UPDATES)
        mean = 1 + 6 * np.exp(-update / 8)
        ended = {
            "seed": np.full(count, number, np.int32),
            "iteration": iteration.astype(np.int32),
            "environment": np.zeros(count, np.int32),
            "return": (1 - 0.5 * np.exp(-iteration / 10)).astype(np.float32),
            "cost": cost,
            "length": np.full(count, 20, np.int32),
            "terminated": np.ones(count, bool),
            "valid": np.ones(count, bool),
        }
        numbers = {
            "tier": update < 15,
            "accepted": np.ones(UPDATES),
            "backtracks": 1 + update % 3,
            "risk_bound": np.geomspace(1, 0.03, UPDATES),
            "window_episodes": np.full(UPDATES, 20),
            "cost_mean": mean,
            "cost_deviation": np.sqrt(mean),
            "bound_value": np.linspace(3, -0.1, UPDATES),
        }
        known = {"seed": np.full(UPDATES, number, np.int32), "iteration": update.astype(np.int32)}
        known["steps"] = (update + 1).astype(np.int64) * BATCH
        known |= {name: column.astype(np.float32) for name, column in numbers.items()}
        episodes.append(pl.DataFrame(ended))
        metrics.append(pl.DataFrame(known))
    return {"episodes": pl.concat(episodes), "metrics": pl.concat(metrics)}


def config(seeds, env="IcyLake", algorithm="canary", overrides=()):
    overrides = (
        *overrides,
        "training.environments=5",
        "training.rollout_length=200",
        "training.total_steps=40000",
    )
    return config_to_dict(make_config(env, algorithm, None, "fast", overrides, seeds=seeds))


def add_group(
    folder, seeds=(1, 2), final=True, violations=None, updates=UPDATES, **settings
) -> None:
    """`violations` of 500 fresh episodes by seed; `updates` have whole episodes."""
    with TemporaryDirectory() as root:
        run = add_run(Path(root), "run", seeds, updates, **settings)
        (results,) = of_run(run)
    for index, seed in enumerate(seeds):
        policy = {"violation": 0.01 * seed, "return": 0.9}
        if violations is not None:
            count = {"episodes": 500, "violations": violations[index]}
            policy |= count | {"violation": violations[index] / 500}
        results.seeds[seed]["final"] = policy if final else None
    store.add(folder, results)


def add_study(results, names: dict[str, str], view="study", **about) -> None:
    """`names`: row to folder."""
    results.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, folder in names.items():
        row = store.read_row(results / folder)
        stored = config((1, 2)) if row is None else row.config
        described = {
            "row": name, "about": "", "folder": folder, "overrides": [], "paper": None,
            "environment": stored["environment"]["name"], "algorithm": stored["algorithm"]["name"],
            "preset": stored["preset"], "seeds": stored["training"]["seeds"],
        }  # fmt: skip
        rows.append(described | about)
    study = {"name": results.name, "title": "A title", "view": view, "rows": rows}
    store.write_sealed(results / "study.json", study)


def add_run(root, name: str, seeds=(1, 2), updates=UPDATES, **settings) -> Path:
    run = directory.create(root, config(seeds, **settings), UPDATES * BATCH, name=name)
    made = tables(seeds)
    made["episodes"] = made["episodes"].filter(pl.col("iteration") < updates)
    for kind, table in made.items():
        write_table(run, kind, table)
    update_manifest(run, status="finished", steps=UPDATES * BATCH, train_seconds=2.0)
    return run
