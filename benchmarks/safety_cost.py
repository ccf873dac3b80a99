"""What it costs in training speed that a run cannot lie: finiteness checks, digests and the lock,
as a share of training.

    python -m benchmarks.safety_cost [--rounds 200] [--algorithm canary] [--env IcyLake]

The check inside the program is measured twice. As a difference: the same training is advanced in
turn with and without it, one update at a time, so that whatever else the machine does meets both; a
third program, another copy of the checked one, shows how much two equal programs seem to differ.
And by itself: the check as a program of its own on the arrays of a batch, with the price of
starting a program, which it does not pay inside of another. What happens between chunks and at a
checkpoint is timed by itself too. Times are processor seconds of this process: they mean the same
on a busy machine.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from canary import training
from canary.config.config import config_to_dict, make_config
from canary.config.run_config import RunConfig
from canary.runs import files
from canary.runs.records import episodes_frame, find_fault, metrics_frame
from canary.runs.seeds import SeedGroups, make_groups
from canary.training import FAULT, first_fault

CALLS = 200  # of a short program, for one time of it
LOW = 0.25  # the quantile of times that is compared: disturbances only ever add


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


def measure(config: RunConfig, rounds: int) -> dict[str, tuple[float, float]]:
    """Shares of the time of an update, each with the half-width of a 95% interval; `update` itself
    in seconds."""
    checked, shapes = started(config), []
    with mock.patch.object(
        training, "first_fault", lambda *given: shapes.append(given) or jnp.zeros(())
    ):
        bare = started(config)
    programs = {"checked": checked, "bare": bare, "again": started(config)}
    times: dict[str, list[float]] = {name: [] for name in (*programs, "between", "alone")}
    alone = _alone(shapes[0])
    for number in range(rounds):
        for name in sorted(programs, reverse=number % 2 == 1):  # none is always the first
            seconds, (metrics, ends) = seconds_of(programs[name].advance, 1)
            times[name].append(seconds)
        looked, _ = seconds_of(
            find_fault,
            metrics[FAULT],
            ends,
            config.training.environments,
            config.environment.horizon,
        )
        weighed, _ = seconds_of(checked.unsound)
        times["between"].append(looked + weighed)
        if number % 10 == 0:
            times["alone"].append(seconds_of(alone)[0] / CALLS)
    metrics, ends = checked.advance(1)
    tables = [
        metrics_frame(
            {name: value for name, value in metrics.items() if name != FAULT}, (0,), 0, 1
        ),
        episodes_frame(ends, (0,), 0),
    ]
    for groups in programs.values():
        groups.close()
    return shares({name: np.array(values) for name, values in times.items()}) | {
        "checkpoint": (checkpoint_seconds(config, tables) / config.training.checkpoint_seconds, 0.0)
    }


def _alone(shapes: tuple) -> Callable[[], None]:
    arrays = jax.tree.map(lambda traced: jnp.zeros(traced.shape, traced.dtype), shapes)
    program = jax.jit(first_fault, compiler_options={"xla_cpu_multi_thread_eigen": False})
    program(*arrays).block_until_ready()

    def call() -> None:
        for _ in range(CALLS):
            program(*arrays).block_until_ready()

    return call


def shares(times: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Quantiles of times against each other; intervals from rounds drawn again with replacement."""
    random, found = np.random.default_rng(0), []
    rounds = len(times["bare"])
    for _ in range(1000):
        drawn = random.integers(rounds, size=rounds)
        found.append(
            _shares({name: _again(values, drawn, random) for name, values in times.items()})
        )
    whole = _shares(times)
    half = {name: 1.96 * float(np.std([one[name] for one in found])) for name in whole}
    return {name: (value, half[name]) for name, value in whole.items()}


def _again(values: np.ndarray, drawn: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The same rounds for all that was timed in every round; what was timed less often is drawn by
    itself."""
    return values[drawn] if len(values) == len(drawn) else random.choice(values, len(values))


def _shares(times: dict[str, np.ndarray]) -> dict[str, float]:
    low = {name: float(np.quantile(values, LOW)) for name, values in times.items()}
    update = low["bare"]
    return {
        "update": update,
        "difference": low["checked"] / update - 1,
        "equal programs": low["again"] / low["checked"] - 1,
        "alone": low["alone"] / update,
        "between": low["between"] / update,
    }


def checkpoint_seconds(config: RunConfig, tables: list[Any]) -> float:
    """The digests of tables and manifest: all that a checkpoint does for safety alone."""
    written = json.dumps(config_to_dict(config)).encode()
    data = [table.write_csv().encode() for table in tables]
    seconds, _ = seconds_of(
        lambda: (
            [hashlib.sha256(part).hexdigest() for part in data],
            [files.digest_of(json.loads(written)) for _ in range(3)],
        )
    )
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description="What safety costs in training speed.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--algorithm", default="canary")
    parser.add_argument("--env", default="IcyLake")
    options = parser.parse_args()
    config = make_config(options.env, algorithm=options.algorithm, seeds=(0,))
    found, chunk = measure(config, options.rounds), config.training.chunk
    found["between"] = (found["between"][0] / chunk, found["between"][1] / chunk)
    print(
        f"an update: {1e3 * found.pop('update')[0]:.3f} ms ({options.algorithm}, one seed, "
        f"{options.env})"
    )
    words = {
        "difference": "checks inside the program, with and without them",
        "equal programs": "two equal programs, for comparison",
        "alone": "checks as a program of their own (an upper bound)",
        "between": f"checks between chunks, of {chunk} updates each",
        "checkpoint": "digests at a checkpoint, of the time between two",
    }
    for name, text in words.items():
        print(f"{text:<52}{found[name][0]:+8.3%} +- {found[name][1]:.3%}")
    total = sum(found[name][0] for name in ("alone", "between", "checkpoint"))
    print(f"{'all of it, at most':<52}{total:+8.3%}")


if __name__ == "__main__":
    main()
