"""Train: into a run directory, or as a pure function."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from canary.api.run import RUNS, Run, finished
from canary.config.config import Overrides, Said, by_section, make_config
from canary.config.run_config import RunConfig
from canary.constraints import Joint, Mean
from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.exploration import initial_std, with_initial_std
from canary.export.trained_policy import TrainedPolicy
from canary.runs.devices import prepare_devices
from canary.runs.directory import find_run
from canary.runs.runner import new_run, train_run
from canary.runs.seeds import make_terms, make_trainer
from canary.runs.warm_start import SCHEDULE_START, Start, start_from_policy, start_from_run
from canary.training import TrainingState, train_whole
from canary.types import Metrics, Terms
from canary.values import AnySteps, Seeds, Texts, checked
from canary.watching import Callback

Number = float | Float[Array, ""]


@checked
def train(
    env: str | Environment = "IcyLake",
    algorithm: Any = "canary",
    constraint: Said = None,
    *,
    seeds: Seeds | None = None,
    total_steps: AnySteps | None = None,
    preset: str = "fast",
    out: str | Path = RUNS,
    overrides: Overrides = (),
    cost: str | None = None,
    name: str | None = None,
    tags: Texts = (),
    callback: Callback | None = None,
    log: Texts = (),
    quiet: bool = False,
    final_check: bool = True,
    start: Run | TrainedPolicy | Start | str | Path | None = None,
) -> Run:
    """Train and return the run.

    `env` is an environment, the name of one of ours, or a reference such as "my_package.shop:Shop"
    or "gymnasium:Pendulum-v1" (docs/environments/your-own.md); `cost` says where the cost of another
    package's environment is. `algorithm` is a name, settings such as `CanaryConfig(dead_zone=0.6)`,
    or a method of your own (docs/examples/own-constraint.md). `constraint` is a `Chance`, a `Mean`
    or a `CVaR`, a list of them for several costs, or a dictionary with any of "kind", "limit" and
    "epsilon". The `preset` chooses all other settings, and `overrides` change single ones:
    {"algo.dead_zone": 0.6} or ("algo.dead_zone=0.6",).

    `seeds` is a number (4 means 0 to 3) or a list. `total_steps` are environment steps per seed,
    600_000 or "600k". `name` names the run and its directory below `out`; `tags` are labels for
    `canary list`. `callback` gets a `canary.Update` after every update; training stops if it returns
    False. `log` names logs for other tools: "csv", "tensorboard" or "wandb" (docs/watching.md). At
    the end the frozen policies play up to 300 fresh episodes per seed, unless `final_check` is
    False. Ctrl-C saves and raises `TrainingInterrupted`, a KeyboardInterrupt with the `run`.

    `start` is a run to start from, seed by seed: its policies, normalisers and critics; or one
    policy, `run.policy(seed=2)`. Limit, settings and environment may differ, as long as
    observations, actions and networks have the same sizes.
    """
    begun = _start(start, Path(out))
    if seeds is None:
        seeds = 4 if begun is None or begun.seed is not None else begun.seeds
    training: dict[str, Any] = {"seeds": range(seeds) if isinstance(seeds, int) else seeds}
    training |= {} if total_steps is None else {"total_steps": total_steps}
    if begun is not None and "schedule_start" not in by_section(overrides)["training"]:
        training["schedule_start"] = SCHEDULE_START
    config = make_config(env, algorithm, constraint, preset, overrides, cost, **training)
    place = new_run(config, Path(out), name=name, tags=tags, log=log, start=begun)
    train_run(place, config, callback=callback, quiet=quiet)
    return finished(Run(place, config), final_check=final_check, quiet=quiet)


def _start(start: Run | TrainedPolicy | Start | str | Path | None, out: Path) -> Start | None:
    """The networks and normaliser that training starts from, as arrays."""
    if start is None or isinstance(start, Start):
        return start
    if isinstance(start, TrainedPolicy):
        return start_from_policy(start.policy, start.statistics, start.sha256)
    if isinstance(start, Run):
        return start_from_run(start.directory)
    return start_from_run(find_run(str(start), out))


@checked
def make_train(
    env: str | Environment | RunConfig = "IcyLake",
    algorithm: Any = "canary",
    constraint: Said = None,
    *,
    total_steps: AnySteps | None = None,
    preset: str = "fast",
    overrides: Overrides = (),
    cost: str | None = None,
) -> Callable[..., tuple[TrainingState, Metrics]]:
    """A pure function `train(key, limit=None, epsilon=None) -> (state, metrics)` for `jax.jit` and
    `jax.vmap`, over keys, limits and epsilons (docs/examples/functional.md).

    The arguments are those of `canary.train`, or one `RunConfig`, such as `run.config`. `limit` and
    `epsilon` replace the constraint's; settings that the preset derived from the constraint stay.
    The state has the policy (`state.learner.policy`); metrics are arrays over the updates. Seed i of
    `canary.train` has the key `fold_in(key(0), i)`. Nothing is written. A non-finite number raises
    no error; it makes the metric "fault" positive.
    """
    said = (algorithm, constraint, total_steps, preset, overrides, cost)
    if isinstance(env, RunConfig):
        config = env
        if said != ("canary", None, None, "fast", (), None):
            raise CanaryError("A configuration says everything; leave out the other arguments.")
    else:
        training = {} if total_steps is None else {"total_steps": total_steps}
        config = make_config(env, algorithm, constraint, preset, overrides, cost, **training)
    if isinstance(config.environment, GymnasiumEnvironment):
        raise CanaryError(
            f"{config.environment_name} is stepped outside JAX, so its training is not "
            "a pure function; use canary.train."
        )
    prepare_devices()
    # A vectorised program would compute both branches of the merging of equal inputs.
    config = replace(config, training=replace(config.training, merge_capacity=0))
    trainer = make_trainer(with_initial_std(config, initial_std(config)))

    def train(
        key: PRNGKeyArray, limit: Number | None = None, epsilon: Number | None = None
    ) -> tuple[TrainingState, Metrics]:
        terms = _with_numbers(config, make_terms(config), limit=limit, epsilon=epsilon)
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(key)  # of jax.random.PRNGKey
        return train_whole(trainer, terms, key, config.training.updates)

    return train


def _with_numbers(config: RunConfig, terms: Terms, **numbers: Number | None) -> Terms:
    """The terms with another limit and epsilon. Python's numbers are checked; traced ones cannot
    be."""
    said = {name: value for name, value in numbers.items() if value is not None}
    if "epsilon" in said and isinstance(config.constraint, Mean):
        raise CanaryError("A constraint on the mean cost has no epsilon; leave it out.")
    if not isinstance(config.constraint, Joint):
        plain: dict[str, Any] = {k: v for k, v in said.items() if not isinstance(v, jax.Array)}
        replace(config.constraint, **plain)  # raises a sentence
    arrays: dict[str, Any] = {k: jnp.asarray(value, jnp.float32) for k, value in said.items()}
    for name, array in arrays.items():
        if array.shape != terms.limit.shape:
            raise CanaryError(
                f"{name} must have the shape {terms.limit.shape}, not {array.shape}; jax.vmap goes "
                "over more."
            )
    return replace(terms, **arrays)
