"""Trained environment steps per second of the presets, as ratios to the plain reference in one run
on one machine.

    python -m benchmarks.training_speed     # everything: about five minutes on two cores
    python -m benchmarks.training_speed --seeds 4 --many-seeds 0 --updates 10

Each variant runs in a process of its own (so that peak memory is its own), twice: first with an
empty compilation cache, then with the cache filled. All train the same seeds on IcyLake from the
start, so early batches with many distinct inputs count as they do in a real run.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

VARIANTS = ("reference", "paper", "fast")


def matrix_product_speed() -> float:
    """GFLOP/s of 1000x256x256 float32 products, the bulk of the arithmetic."""
    import jax
    import jax.numpy as jnp

    rows, weights = jnp.ones((1000, 256)), jnp.ones((256, 256))
    chain = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, y: 0.01 * (y @ weights), x))
    chain(rows).block_until_ready()
    began = time.perf_counter()
    chain(rows).block_until_ready()
    return 300 * 2 * 1000 * 256 * 256 / (time.perf_counter() - began) / 1e9


def measure_here(variant: str, seeds: int, updates: int) -> dict[str, float]:
    """One variant in this process: compile, a first chunk to warm up, then timed chunks."""
    from canary.algorithms.base import Task
    from canary.config.config import make_config
    from canary.rollout import CostAccount
    from canary.runs.seeds import SeedGroups, make_trainer

    preset = "paper" if variant == "reference" else variant
    config = make_config(preset=preset, seeds=tuple(range(seeds)), total_steps=1_000_000)
    trainer = make_trainer(config)
    if variant == "reference":
        from benchmarks.reference import make_reference

        environment = config.environment
        task = Task(
            input_size=environment.observation_size + CostAccount.SIZE,
            action_space=environment.action_space,
        )
        trainer = replace(trainer, algorithm=make_reference(config.algorithm, task))
        config = replace(config, training=replace(config.training, seeds_per_device=seeds))
    groups = SeedGroups(config, trainer)
    groups.start()
    began = time.perf_counter()
    groups.advance(1)
    compiled = time.perf_counter() - began
    began, done = time.perf_counter(), 0
    while done < updates:
        done += min(10, updates - done)
        groups.advance(min(10, updates))
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "compile": compiled,
        "speed": done * config.training.batch * seeds / seconds,
        "peak": peak,
    }


def measure(variant: str, seeds: int, updates: int) -> dict[str, float]:
    """Twice in a process of its own: the first fills the cache."""
    with tempfile.TemporaryDirectory() as cache:
        cold = _child(variant, seeds, 1, cache)["compile"]
        return _child(variant, seeds, updates, cache) | {"cold": cold}


def _child(variant: str, seeds: int, updates: int, cache: str) -> dict[str, float]:
    settings = {
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    command = [sys.executable, "-m", "benchmarks.training_speed", variant, str(seeds), str(updates)]
    result = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout.splitlines()[-1])


def main(seeds: int = 4, many_seeds: int = 30, updates: int = 30) -> None:
    """Measure. `--many-seeds 0` leaves those out."""
    product = matrix_product_speed()
    print(f"1000x256x256 float32 products: {product:.0f} GFLOP/s on {os.cpu_count()} cores")
    plan = [(variant, seeds, updates) for variant in VARIANTS]
    if many_seeds:  # the same updates at both numbers of seeds
        plan += [("fast", count, max(5, updates // 3)) for count in (many_seeds, seeds)]
    speeds: list[float] = []
    for variant, count, length in plan:
        found = measure(variant, count, length)
        speeds.append(found["speed"])
        print(
            f"{variant:10s} {count:3d} seeds, {length} updates: {found['speed']:7.0f} steps/s "
            f"({found['speed'] / speeds[0]:.2f}x), compile {found['cold']:.1f} s cold, "
            f"{found['compile']:.1f} s cached, peak {found['peak']:.0f} MB",
            flush=True,
        )
    if many_seeds:
        ratio = speeds[-1] / speeds[-2]
        print(f"cost per seed at {many_seeds} seeds / at {seeds} seeds: {ratio:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in VARIANTS:  # a process of its own, as `measure` starts it
        print(json.dumps(measure_here(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))), flush=True)
    else:
        import tyro

        tyro.cli(main)
