"""Runs of seconds for tests of the machinery."""

from canary.config.config import RunConfig, make_config


def small_config(**training) -> RunConfig:
    """IcyLake with short episodes, tiny networks and few gradient steps; 200 steps per update."""
    small = {"seeds": (0, 1), "environments": 4, "rollout_length": 50, "chunk": 7, "updates": 60}
    training = small | training
    batch = training["environments"] * training["rollout_length"]
    training["total_steps"] = training.pop("updates") * batch
    overrides = ("env.horizon=20", "algo.hidden=[16]", "algo.epochs=2", "algo.minibatch_size=100")
    return make_config("IcyLake", "canary", overrides=overrides, **training)
