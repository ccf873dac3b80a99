"""How much a warm start saves: to half the limit, from a trained policy and from nothing.

    python -m benchmarks.warm_start                          # PointGoal, 4 seeds: hours on two cores
    python -m benchmarks.warm_start --env IcyLake --steps 600000

Three runs: at the environment's own limit, then at half of it, once with `start=` the first run and
once without. A seed has reached the limit at the first update where its last 100 episodes violate
it in at most epsilon of them and earn 90% of what training from nothing earns in the end: a policy
that stands still is safe and has reached nothing. Runs that are there are not trained again.
"""

from pathlib import Path

import numpy as np
import polars as pl

import canary

WINDOW = 100  # episodes
EARNED = 0.9  # of the return of the last tenth of training from nothing
SEEDS = (8000, 8001, 8002, 8003)


def steps_to_reach(
    episodes: pl.DataFrame, limit: float, epsilon: float, reward: float, batch: int
) -> int | None:
    """Steps of one seed until its last episodes are safe and earn so much; None: never."""
    own = episodes.filter(pl.col("valid")).sort("iteration", maintain_order=True)
    over, earned, iteration = (
        own[name].to_numpy().astype(float) for name in ("cost", "return", "iteration")
    )
    if len(own) < WINDOW:
        return None
    mean = np.ones(WINDOW) / WINDOW
    rate, earned = (np.convolve(values, mean, "valid") for values in (over > limit, earned))
    reached = np.flatnonzero((rate <= epsilon + 1e-9) & (earned >= reward))
    return int((iteration[WINDOW - 1 :][reached[0]] + 1) * batch) if len(reached) else None


def trained(name: str, out: Path, **settings) -> canary.Run:
    if (out / name / "summary.json").exists():
        return canary.load(name, out=out)
    return canary.train(name=name, out=out, seeds=SEEDS, final_check=False, **settings)


def main(
    env: str = "PointGoal", steps: int = 2_000_000, out: Path = Path("runs/warm-start")
) -> None:
    """Print a row per seed: steps from nothing, steps from the other run, and their ratio."""
    source = trained(f"{env}-source", out, env=env, total_steps=steps)
    own = source.config.constraint
    assert isinstance(own, canary.Chance)
    half = canary.Chance(own.limit / 2, own.epsilon)
    tuned = trained(
        f"{env}-tuned", out, env=env, constraint=half, total_steps=steps // 3, start=source
    )
    scratch = trained(f"{env}-scratch", out, env=env, constraint=half, total_steps=steps)
    batch, updates = scratch.config.training.batch, scratch.config.training.updates
    print(f"{env}, {half.text}: steps until it holds at {EARNED:.0%} of the return")
    for seed in SEEDS:
        ours = [run.episodes.filter(pl.col("seed") == seed) for run in (scratch, tuned)]
        last = ours[0].filter(pl.col("iteration") >= 0.9 * updates)["return"].to_numpy()
        reward = EARNED * float(last.mean())
        nothing, warm = (
            steps_to_reach(one, half.limit, half.epsilon, reward, batch) for one in ours
        )
        ratio = f"{warm / nothing:.2f}" if warm and nothing else "-"
        print(f"seed {seed}: from nothing {nothing}, from the other run {warm}, ratio {ratio}")


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
