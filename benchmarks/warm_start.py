"""How many steps a warm start saves: to half the limit, from trained policies and from scratch.

    python -m benchmarks.warm_start                                      PointGoal, 4 seeds
    python -m benchmarks.warm_start --env IcyLake --total-steps 600000

Three runs: at the environment's own limit, at half of it from scratch, and at half of it with
`start=` the first run and a third of the steps. A seed has reached the limit after the first update
at which its last 200 episodes violate it in at most epsilon of them and earn 90% of what training
from scratch earns in its last tenth: a policy that stands still is safe and has reached nothing.
Then fresh episodes of the final policies. Runs that are there are not trained again.
"""

from pathlib import Path

import numpy as np
import polars as pl

import canary

WINDOW = 200  # episodes
EARNED = 0.9  # of the return of the last tenth of training from scratch
SEEDS = (8000, 8001, 8002, 8003)


def steps_to_reach(
    episodes: pl.DataFrame, limit: float, epsilon: float, reward: float, batch: int
) -> int | None:
    """Steps of one seed until its last episodes are safe and earn so much; None: never."""
    own = episodes.filter(pl.col("valid")).sort("iteration", maintain_order=True)
    cost, earned, iteration = (own[name].to_numpy() for name in ("cost", "return", "iteration"))
    if len(own) < WINDOW:
        return None
    mean = np.ones(WINDOW) / WINDOW
    rate, earned = (np.convolve(each, mean, "valid") for each in ((cost > limit) * 1.0, earned))
    reached = np.flatnonzero((rate <= epsilon + 1e-9) & (earned >= reward))
    return int((iteration[WINDOW - 1 :][reached[0]] + 1) * batch) if len(reached) else None


def trained(name: str, out: Path, **settings) -> canary.Run:
    if (out / name / "summary.json").exists():
        return canary.load(name, out=out)
    return canary.train(name=name, out=out, seeds=SEEDS, final_check=False, **settings)


def main(
    env: str = "PointGoal", total_steps: int = 4_000_000, out: Path = Path("runs/warm-start")
) -> None:
    """Print a row per seed: steps to the limit, and P and return of the final policy."""
    source = trained(f"{env}-source", out, env=env, total_steps=total_steps)
    own = source.config.constraint
    assert isinstance(own, canary.Chance)
    half = canary.Chance(own.limit / 2, own.epsilon)
    warm = trained(
        f"{env}-warm", out, env=env, constraint=half, total_steps=total_steps // 3, start=source
    )
    scratch = trained(f"{env}-scratch", out, env=env, constraint=half, total_steps=total_steps)
    print(
        f"{env}, {half.text}: steps until it holds at {EARNED:.0%} of the return; P, J at the end"
    )
    runs, batch = (scratch, warm), scratch.config.training.batch
    final = [run.evaluate(1000) for run in runs]
    shares, total = [], np.zeros(2)
    for index, seed in enumerate(SEEDS):
        tables = [run.episodes.filter(pl.col("seed") == seed) for run in runs]
        late = tables[0].filter(pl.col("iteration") >= 0.9 * scratch.config.training.updates)
        reward = EARNED * float(late["return"].to_numpy().mean())
        steps = [steps_to_reach(one, half.limit, half.epsilon, reward, batch) for one in tables]
        share = steps[1] / steps[0] if steps[0] and steps[1] else np.inf
        shares.append(share)
        total += [np.inf if each is None else each for each in steps]
        ends = [
            f"{each['violation_per_seed'][index]:.3f}, {each['return_per_seed'][index]:.1f}"
            for each in final
        ]
        print(
            f"seed {seed}: scratch {steps[0]} ({ends[0]}), warm {steps[1]} ({ends[1]}): {share:.2f}"
        )
    print(f"{sum(share <= 1 / 3 for share in shares)} of {len(SEEDS)} seeds in at most a third")
    print(f"all seeds together: {total[1] / total[0]:.2f}")


if __name__ == "__main__":
    import tyro

    tyro.cli(main)
