"""Results and runs with made-up episodes: a page can be drawn of them without training anything."""

import json
from pathlib import Path

import numpy as np
import polars as pl

from canary.config.config import config_to_dict, make_config
from canary.runs import directory
from canary.studies import store

UPDATES, BATCH = 40, 1000


def tables(seeds, limit=5.5, seed=0) -> dict[str, pl.DataFrame]:
    """Costs that fall over training, and metrics as Canary reports them."""
    rng = np.random.default_rng(seed)
    episodes, metrics = [], []
    for number in seeds:
        iteration = np.repeat(np.arange(UPDATES), 10)
        cost = rng.poisson(1 + 6 * np.exp(-iteration / 8)).astype(np.float32)
        episodes.append(
            pl.DataFrame(
                {
                    "seed": np.full(len(cost), number, np.int32),
                    "iteration": iteration.astype(np.int32),
                    "environment": np.zeros(len(cost), np.int32),
                    "return": (1 - 0.5 * np.exp(-iteration / 10) + 0 * cost).astype(np.float32),
                    "cost": cost,
                    "length": np.full(len(cost), 20, np.int32),
                    "terminated": np.ones(len(cost), bool),
                    "valid": np.ones(len(cost), bool),
                }
            )
        )
        update = np.arange(UPDATES)
        metrics.append(
            pl.DataFrame(
                {
                    "seed": np.full(UPDATES, number, np.int32),
                    "iteration": update.astype(np.int32),
                    "steps": (update + 1).astype(np.int64) * BATCH,
                    "tier": (update < 15).astype(np.float32),
                    "accepted": np.ones(UPDATES, np.float32),
                    "backtracks": (1 + update % 3).astype(np.float32),
                    "shaped_bound": np.geomspace(1, 0.03, UPDATES).astype(np.float32),
                    "dead_zone": np.full(UPDATES, 0.6, np.float32),
                    "window_episodes": np.full(UPDATES, 20, np.float32),
                    "cost_mean": (1 + 6 * np.exp(-update / 8)).astype(np.float32),
                    "cost_deviation": np.sqrt(1 + 6 * np.exp(-update / 8)).astype(np.float32),
                    "bound_value": np.linspace(3, -0.1, UPDATES).astype(np.float32),
                }
            )
        )
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
    group: Path, seeds=(1, 2), final=True, violations=None, updates=UPDATES, **settings
) -> None:
    """`violations` of 500 fresh episodes by seed take the place of exact final policies; `updates` is
    how many have whole episodes."""
    stored = config(seeds, **settings)
    rows = {seed: {"violation": 0.01 * seed, "return": 0.9} for seed in seeds}
    if violations is not None:
        counts = zip(seeds, violations, strict=True)
        rows = {
            s: {"episodes": 500, "violations": k, "violation": k / 500, "return": 0.9}
            for s, k in counts
        }
    made = tables(seeds, stored["constraint"]["limit"])
    made["episodes"] = made["episodes"].filter(pl.col("iteration") < updates)
    kind = "exact" if violations is None else "final"
    store.add(
        group,
        store.Units(
            config=stored,
            steps=UPDATES * BATCH,
            tables=made,
            provenance={seed: {"code": "abcdef123456", "versions": {"canary": "1"}, "train_seconds": 1.0} for seed in seeds},
            per_seed={kind: rows} if final else {},
        ),
    )  # fmt: skip


def add_study(results: Path, names: dict[str, str], view="study", **about) -> None:
    """`names`: variant to group."""
    rows = [
        {"variant": variant, "about": "", "group": group, "overrides": [], "paper": None} | about
        for variant, group in names.items()
    ]
    results.mkdir(parents=True, exist_ok=True)
    study = {"name": results.name, "title": "A title", "view": view, "rows": rows}
    (results / "study.json").write_text(json.dumps(study))


def add_run(root: Path, name: str, **settings) -> Path:
    seeds = (1, 2)
    headline = directory.Headline("IcyLake", "canary", len(seeds), UPDATES * BATCH)
    made = directory.create(
        root, headline, config(seeds, **settings), device="cpu", command=["canary", "train"]
    )
    run = made.rename(root / name)
    for kind, table in tables(seeds).items():
        directory.append_parts(run, {kind: table}, 0, UPDATES)
    directory.update_manifest(run, status="finished", steps=UPDATES * BATCH, train_seconds=2.0)
    directory.compact(run)
    return run
