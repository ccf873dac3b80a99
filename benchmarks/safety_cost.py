"""What it costs in training speed that a run cannot lie: finiteness checks, digests and the lock, as a share of training.

    python -m benchmarks.safety_cost [--rounds 10] [--updates 5]

Two programs of the same training are advanced in turn, one without the check of every number in it, so that whatever else
the machine does meets both. What happens between chunks and at a checkpoint is timed by itself. Times are CPU seconds of
this process: they mean the same on a busy machine.
"""

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, stdev
from typing import Any
from unittest import mock

import jax.numpy as jnp

from canary import training
from canary.config.config import config_to_dict, make_config
from canary.config.run_config import RunConfig
from canary.runs import files, lock
from canary.runs.building import make_groups
from canary.runs.faults import find_fault
from canary.runs.records import episodes_frame, metrics_frame
from canary.runs.seeds import SeedGroups
from canary.training import FAULT


def started(config: RunConfig) -> SeedGroups:
    groups = make_groups(config)
    groups.start()
    groups.compile()
    groups.advance(1)
    return groups


def seconds_of(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    began = time.process_time()
    result = work(*arguments)
    return time.process_time() - began, result


def measure(config: RunConfig, rounds: int, updates: int) -> dict[str, float]:
    """CPU seconds: of a chunk with and without the check in it, of the checks after it, and of a checkpoint's digests."""
    checked = started(config)
    with mock.patch.object(training, "first_fault", return_value=jnp.zeros(())):
        bare = started(config)
    times: dict[str, list[float]] = {"checked": [], "bare": [], "between": []}
    horizon, lanes = config.environment.horizon, config.training.environments
    for number in range(rounds):
        order = {"checked": checked, "bare": bare}
        for name in sorted(order, reverse=number % 2 == 1):  # neither is always the first
            seconds, (metrics, ends) = seconds_of(order[name].advance, updates)
            times[name].append(seconds)
        looked, _ = seconds_of(find_fault, metrics.pop(FAULT), ends, lanes, horizon)
        weighed, _ = seconds_of(checked.unsound)
        times["between"].append(looked + weighed)
    found = {name: median(values) for name, values in times.items()}
    # The rounds are pairs: the median of their differences is steadier than the difference of medians.
    apart = [one - other for one, other in zip(times["checked"], times["bare"], strict=True)]
    found["inside"] = median(apart)
    found["error"] = 1.25 * stdev(apart) / len(apart) ** 0.5  # of a median, were they normal
    tables = [metrics_frame(metrics, config.training.seeds, 0, config.training.batch)]
    tables.append(episodes_frame(ends, config.training.seeds, 0))
    found["checkpoint"] = checkpoint_seconds(config, tables)
    for groups in (checked, bare):
        groups.close()
    return found


def checkpoint_seconds(config: RunConfig, tables: list[Any]) -> float:
    """The digests of tables and manifest, and the look at the lock: all that a checkpoint does for safety alone."""
    written = json.dumps(config_to_dict(config)).encode()
    data = [table.write_csv().encode() for table in tables]
    with tempfile.TemporaryDirectory() as folder, lock.acquire(Path(folder)) as held:
        seconds, _ = seconds_of(
            lambda: (
                [hashlib.sha256(part).hexdigest() for part in data],
                [files.digest_of(json.loads(written)) for _ in range(3)],
                held.check(),
            )
        )
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="What safety costs in training speed.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--algorithm", default="canary")
    options = parser.parse_args()
    config = make_config(algorithm=options.algorithm, seeds=(0,))
    found = measure(config, options.rounds, options.updates)
    chunk = found["bare"]
    every = config.training.checkpoint_seconds
    print(f"a chunk of {options.updates} updates: {chunk:.4f} CPU s ({options.algorithm}, one seed, IcyLake)")
    print(f"checks inside the program:  {found['inside'] / chunk:+.2%} +- {found['error'] / chunk:.2%}")
    print(f"checks between chunks:      {found['between'] / chunk:+.2%} ({found['between'] * 1e3:.2f} ms)")
    print(f"digests at a checkpoint:    {found['checkpoint'] / every:+.4%} of the {every:g} s between two")


if __name__ == "__main__":
    main()
