"""Runs of seconds for tests of the machinery."""

from canary.config.config import RunConfig, make_config

SEEDS, UPDATES = (0, 1), 20


def small_config(**training) -> RunConfig:
    """IcyLake with short episodes, tiny networks and few gradient steps; 200 steps per update."""
    training = {
        "seeds": SEEDS,
        "environments": 4,
        "rollout_length": 50,
        "chunk": 7,
        "updates": 60,
    } | training
    training["total_steps"] = (
        training.pop("updates") * training["environments"] * training["rollout_length"]
    )
    overrides = (
        "env.horizon=20",
        "algo.hidden=[16]",
        "algo.epochs=2",
        "algo.minibatch_size=100",
    )
    return make_config("IcyLake", "canary", overrides=overrides, **training)


def run_config() -> RunConfig:
    """A checkpoint after every chunk, and chunks short enough for many of them."""
    return small_config(updates=UPDATES, chunk=2, checkpoint_seconds=0, merge_capacity=0)
