"""The Python interface: train, load and use runs, and act with their policies.

For example:

    run = canary.train("IcyLake", constraint=canary.Chance(limit=5.5, epsilon=0.02), seeds=4)
    run.summary()["violation_probability"]
    run.certify()["sentence"]
    episode = run.policy(seed=0).start()
    action = episode.act(observation)
    episode.spend(cost)  # the cost of that step

A function of a run takes the run or its path, and is also a method of `Run`. All arguments are
checked by their types before anything runs. The environment arguments of `canary.load` apply to
everything that is done with the run.
"""

import contextlib
import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Union, cast

import jax
import jax.numpy as jnp
import polars as pl
from jaxtyping import Array, Float, PRNGKeyArray

from canary.certification.best import find_best
from canary.certification.plan import Plan
from canary.certification.run import certify_run
from canary.config.config import Overrides, Said, by_section, make_config
from canary.config.run_config import RunConfig
from canary.constraints import Joint, Mean
from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.exploration import initial_std, with_initial_std
from canary.exporting.trained_policy import TrainedPolicy
from canary.reporting.summary import (
    EVALUATION,
    YARDSTICK,
    EvaluationSummary,
    TrainingSummary,
    summarise_evaluation,
    summarise_run,
)
from canary.runs import files
from canary.runs.checkpoint import stored_updates
from canary.runs.devices import prepare_devices
from canary.runs.directory import find_run
from canary.runs.environment import open_config, refuse_changes
from canary.runs.policies import EvaluationPlan, FrozenPolicies, load_policies, play
from canary.runs.runner import new_run, train_run
from canary.runs.seeds import make_terms, make_trainer
from canary.runs.tables import read_table
from canary.runs.warm_start import Start, start_from_policy, start_from_run
from canary.terminal.console import evaluation_bar
from canary.training import TrainingState, train_whole
from canary.types import Metrics, Terms
from canary.values import AnySteps, Count, Positive, Seeds, Texts, Whole, checked
from canary.watching import Callback

RUNS = Path("runs")
AnyRun = Union["Run", str, Path]
Number = float | Float[Array, ""]


@checked
def load(
    path: str | Path = "latest",
    environment: Environment | None = None,
    *,
    out: str | Path = RUNS,
    trust: bool = False,
    accept_change: bool = False,
) -> "Run":
    """The run at that path, or of that name below `out`, or the newest ("latest").

    A run that was trained on your own code needs its environment: pass it as `environment`, or pass
    `trust=True` once to import the code that the run names. A changed environment is refused. With
    `accept_change=True` the run can be evaluated and certified; both results state the difference.
    """
    place = find_run(str(path), Path(out))
    config = open_config(place, environment, trust=trust, accept_change=accept_change)
    return Run(place, config)


@checked
def compare(
    runs: Sequence[AnyRun], *, figure: str | Path | None = None, out: str | Path = RUNS
) -> dict[str, Any]:
    """Compare runs of one environment over the second half of training.

    Each entry of "runs" has the settings in which it "differs", "return_mean" and
    "constraint_value" with 95% intervals over seeds, "safe_seeds", and "return_against_first", seed
    by seed. A run is a `Run`, a path, or a name below `out`; `figure` names a .png for their curves.
    """
    from canary.reporting.comparison import compare_runs  # matplotlib takes a second

    places = [
        run.directory if isinstance(run, Run) else find_run(str(run), Path(out)) for run in runs
    ]
    return compare_runs(places, None if figure is None else Path(figure))


@checked
def evaluate(
    run: AnyRun,
    episodes: Count = 1000,
    *,
    step: Whole | None = None,
    seeds: Seeds | None = None,
    deterministic: bool = False,
    evaluation_seed: Whole = 0,
    report: Callable[[int, int], None] = lambda seed, count: None,
    video: Any = None,
) -> EvaluationSummary:
    """Play fresh episodes with the frozen policy of each seed and summarise them.

    `step` chooses the policies after that many environment steps (default: the newest). `seeds` is a
    list of seeds, or a number: the first few. `report(seed, episodes)` is called after every batch.
    A `video` (a `VideoRequest`) shows the worst and the median episode; `Run.video` is simpler. The
    summary of the newest policies is also written into the run, for `canary report`.
    """
    run = as_run(run)
    plan = EvaluationPlan(
        episodes=episodes,
        seeds=chosen_seeds(run, seeds),
        deterministic=deterministic,
        evaluation_seed=evaluation_seed,
    )
    how: dict[str, Any] = {"deterministic": deterministic, "evaluation_seed": evaluation_seed}
    policies = loaded(run, step)
    if video is None:
        table, seconds = play(policies, plan, report)
    else:
        from canary.rendering import run as videos  # Pillow and fonts: only where they are needed

        if not isinstance(video, videos.VideoRequest):
            raise CanaryError(f"video must be a VideoRequest, not {video!r:.60}; or use Run.video.")
        table, seconds, how["video"] = videos.play_and_film(
            video, policies, plan, run.directory, report
        )
    if changes := run.config.environment_changes:
        how["environment_changes"] = list(changes)
    how["updates"] = policies.iteration
    how["policy_sha256"] = {
        str(seed): policies.trained(seed).sha256
        for seed in table["seed"].unique(maintain_order=True)
    }
    summary = summarise_evaluation(run.directory, table, seconds) | how
    if step is None and not deterministic and not changes:
        try:  # for `canary report`
            files.write_sealed(run.directory / EVALUATION, summary)
        except CanaryError as error:
            warnings.warn(str(error), stacklevel=3)
    return cast(EvaluationSummary, summary)


@checked
def video(
    run: AnyRun,
    path: str | Path | None = None,
    episodes: Count = 200,
    *,
    drawing: Callable[..., Any] | None = None,
    most_frames: Count = 300,
    step: Whole | None = None,
    seeds: Seeds | None = None,
    deterministic: bool = False,
    evaluation_seed: Whole = 0,
) -> Path:
    """Play fresh episodes and film the worst beside the median one, as .gif or .mp4 (default:
    video.gif in the run). `drawing` draws an environment of your own (docs/rendering.md)."""
    from canary.rendering.run import VideoRequest

    summary = evaluate(
        run, episodes, step=step, seeds=seeds, deterministic=deterministic,
        evaluation_seed=evaluation_seed,
        video=VideoRequest(path=path, drawing=drawing, most_frames=most_frames),
    )  # fmt: skip
    return Path(cast(dict[str, Any], summary)["video"]["path"])


@checked
def certify(
    run: AnyRun,
    *,
    confidence: float = 0.95,
    episodes: Count | None = None,
    early_stop: bool = True,
    step: Whole | None = None,
    seeds: Seeds | None = None,
    shift: Texts = (),
    limit: float | tuple[float, ...] | None = None,
    epsilon: float | tuple[float, ...] | None = None,
    deterministic: bool = False,
    evaluation_seed: Whole | None = None,
    largest_step_cost: Positive | None = None,
    sign: Any = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """A certificate from fresh episodes of the run's frozen policies, also written into the run
    (docs/certification.md).

    `episodes` is the largest number per policy; None plans it. `shift` also certifies changed
    settings, such as "slip=0.1,0.2". `limit` and `epsilon` replace the run's; for several costs they
    are tuples. Bounds on mean and CVaR need `largest_step_cost` if the environment does not state
    it. `sign` is a private key or the path of its file. `canary.certification.certify` certifies a
    policy without a run.
    """
    run = as_run(run)
    plan = Plan(
        confidence=confidence,
        episodes=episodes,
        early_stop=early_stop,
        deterministic=deterministic,
    )
    return certify_run(
        run.directory,
        plan,
        seeds=chosen_seeds(run, seeds),
        step=step,
        shift=shift,
        limit=limit,
        epsilon=epsilon,
        evaluation_seed=evaluation_seed,
        largest_step_cost=largest_step_cost,
        sign=sign,
        config=run.config,
        quiet=quiet,
    )


@checked
def best(
    run: AnyRun,
    *,
    confidence: float = 0.95,
    tries: Count = 3,
    selection_episodes: Count = 1000,
    episodes: Count | None = None,
    seeds: Seeds | None = None,
    largest_step_cost: Positive | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Find the stored policy with the highest return that can be certified, over all seeds and
    kept states.

    Stored policies that stay within the limit on episodes of their own are ranked by return. The
    first `tries` of them are certified in turn on fresh episodes until one is SATISFIED, each at
    confidence 1 - (1 - confidence) / tries, which corrects for trying several.
    """
    run = as_run(run)
    return find_best(
        run.directory,
        confidence=confidence,
        tries=tries,
        selection_episodes=selection_episodes,
        episodes=episodes,
        seeds=chosen_seeds(run, seeds),
        largest_step_cost=largest_step_cost,
        config=run.config,
        quiet=quiet,
    )


class ExportRecord(TypedDict):
    """Record of an export, besides the metadata of the file."""

    path: str
    file_sha256: str
    policy_sha256: str
    format: str
    bytes: int
    run_dir: str
    max_abs_difference: float
    """Largest difference of the action distribution from JAX, on random inputs."""
    max_output_difference: float
    """Largest difference of the network's raw outputs."""
    checked_inputs: int
    notes: list[str]


@checked
def export(
    run: AnyRun,
    format: str = "onnx",
    path: str | Path | None = None,
    *,
    seed: Whole | None = None,
    step: Whole | None = None,
) -> ExportRecord:
    """Write the policy of a seed (default: the first) as onnx or numpy and compare it with JAX
    (docs/export.md). The default `path` is below `exports/` of the run."""
    from canary.exporting.run import export_run

    run = as_run(run)
    record = export_run(
        run.directory,
        format=format,
        seed=seed,
        step=step,
        out=None if path is None else Path(path),
        config=run.config,
    )
    return cast(ExportRecord, record)


@dataclass(frozen=True)
class Run:
    """A run directory and its configuration. Everything else is read on demand."""

    directory: Path
    config: RunConfig

    evaluate = evaluate
    certify = certify
    best = best
    export = export
    video = video

    def __repr__(self) -> str:
        config = self.config
        what = f"{config.algorithm_name} on {config.environment_name}, {config.constraint.text}"
        count = len(config.training.seeds)
        seeds = "1 seed" if count == 1 else f"{count} seeds"
        return f"<canary.Run {self.directory}: {what}, {seeds}>"

    def summary(self) -> TrainingSummary:
        """Facts about the training, and the paper's measures over its second half."""
        return cast(TrainingSummary, summarise_run(self.directory))

    @property
    def metrics(self) -> pl.DataFrame:
        """One row per seed and update."""
        return read_table(self.directory, "metrics")

    @property
    def episodes(self) -> pl.DataFrame:
        """One row per episode of training."""
        return read_table(self.directory, "episodes")

    @property
    def stored_steps(self) -> list[int]:
        """The steps whose policies can be loaded: the newest and the kept ones."""
        batch = self.config.training.batch
        return [update * batch for update in sorted(stored_updates(self.directory))]

    @checked
    def policy(self, seed: Whole | None = None, *, step: Whole | None = None) -> TrainedPolicy:
        """The policy of a seed (default: the first) after `step` steps (default: the newest)."""
        seed = self.config.training.seeds[0] if seed is None else seed
        return loaded(self, step).trained(seed)

    @checked
    def plot(self, path: str | Path | None = None) -> Path:
        """Draw return, constraint and cost over training into a .png file (default: training.png in
        the run)."""
        from canary.reporting import figures  # matplotlib takes a second
        from canary.reporting.results import of_run

        place = Path(path or self.directory / "training.png")
        figure = figures.training_figure(of_run(self.directory))
        figures.save(figure, place)
        return place

    @checked
    def resume(
        self,
        *,
        total_steps: AnySteps | None = None,
        callback: Callback | None = None,
        log: Texts = (),
        quiet: bool = False,
        final_check: bool = True,
    ) -> "Run":
        """Train to the planned number of steps, or to a larger `total_steps`, which learning rates
        and other schedules then follow. A finished run does not change."""
        # The policy would be trained on two environments, but the run names one
        refuse_changes(self.directory, self.config.environment_changes)
        config = train_run(
            self.directory,
            self.config,
            total_steps=None if total_steps is None else int(total_steps),
            callback=callback,
            log=log,
            quiet=quiet,
        )
        return finished(replace(self, config=config), final_check=final_check, quiet=quiet)


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during training, after everything was saved; `run` can be resumed."""

    def __init__(self, run: Run):
        super().__init__(
            f"training was interrupted; canary.load({str(run.directory)!r}).resume() continues it"
        )
        self.run = run


# Episodes of the final check: the largest number that takes a small share of the steps of training.
# There are few sizes, so that the cache has their programs.
CHECK_EPISODES, CHECK_SHARE = (300, 200, 100, 50, 20), 0.05
YARDSTICK_EPISODES, YARDSTICK_SECONDS = 64, 10.0


def finished(run: Run, *, final_check: bool, quiet: bool) -> Run:
    """Check the final policies and write summary and figure; raise if training was interrupted."""
    summary = run.summary()
    is_over = summary["status"] in ("finished", "stopped")
    if final_check and is_over and summary["final_check"] is None:
        _check(run, summary, quiet=quiet)
        if summary["warnings"]:
            _yardstick(run)
        summary = run.summary()
    files.write_sealed(run.directory / "summary.json", dict(summary))
    if run.episodes["valid"].any() and importlib.util.find_spec("matplotlib"):
        run.plot()
    if summary["status"] == "interrupted":
        raise TrainingInterrupted(run)
    return run


def _check(run: Run, summary: TrainingSummary, *, quiet: bool) -> None:
    """Evaluate the final policies, in at most `CHECK_SHARE` of the steps of training."""
    length = summary["length_mean"] or run.config.environment.horizon
    affordable = CHECK_SHARE * summary["total_steps"] / length
    if episodes := next((count for count in CHECK_EPISODES if count <= affordable), 0):
        try:
            with evaluation_bar(episodes * summary["seeds"], quiet=quiet) as (report, _):
                evaluate(run, episodes, report=report)
        except CanaryError as error:
            warnings.warn(f"The final policies were not checked: {error}", stacklevel=4)


def _yardstick(run: Run) -> None:
    """Write into the run whether a constant or random action stays within the limit."""
    from canary.checking.record import Recorder
    from canary.checking.yardstick import known_sentence, play_simple

    until = time.monotonic() + YARDSTICK_SECONDS
    with contextlib.suppress(CanaryError):  # a run is complete without the yardstick
        played, _ = play_simple(
            Recorder(run.config.environment),
            YARDSTICK_EPISODES,
            lambda *_: time.monotonic() < until,
        )
        sentence = known_sentence(played, run.config.constraint)
        files.write_sealed(run.directory / YARDSTICK, {"sentence": sentence})


def as_run(run: AnyRun) -> Run:
    """The run of that path or name; a `Run` is returned unchanged."""
    return run if isinstance(run, Run) else load(run)


def loaded(run: Run, step: int | None) -> FrozenPolicies:
    """The policies at a step (default: the newest); warns of skipped damaged checkpoints."""
    policies = load_policies(run.config, run.directory, step)
    for note in policies.notes:
        warnings.warn(note, stacklevel=4)
    return policies


def chosen_seeds(run: Run, seeds: Any) -> tuple[int, ...]:
    """The named seeds, the first few of the run if `seeds` is a number, or all."""
    known = run.config.training.seeds
    if isinstance(seeds, int):
        if not 1 <= seeds <= len(known):
            count = len(known)
            raise CanaryError(f"The run has {count} seeds; take 1 to {count}, or name some.")
        return known[:seeds]
    chosen = known if seeds is None else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen):
        raise CanaryError(f"Name one or more different seeds of the run, not {list(chosen)}.")
    return chosen


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
    600_000 or "600k". `name` names the run's directory below `out`. `callback` gets a
    `canary.Update` after every update; training stops if it returns False. `log` names logs for
    other tools: "csv", "tensorboard" or "wandb" (docs/watching.md). At the end the frozen policies
    play up to 300 fresh episodes per seed, unless `final_check` is False. Ctrl-C saves and raises
    `TrainingInterrupted`, a KeyboardInterrupt with the `run`.

    `start` is a run whose policies, normalisers and critics training starts from, seed by seed; or
    one policy, `run.policy(seed=2)`. Limit, settings and environment may differ if observations,
    actions and networks have the same sizes.
    """
    begun = _start(start, Path(out))
    if seeds is None:
        seeds = 4 if begun is None or begun.seed is not None else begun.seeds
    training: dict[str, Any] = {"seeds": range(seeds) if isinstance(seeds, int) else seeds}
    training |= {} if total_steps is None else {"total_steps": total_steps}
    if begun is not None and "fine_tuning" not in by_section(overrides)["training"]:
        training["fine_tuning"] = True
    config = make_config(env, algorithm, constraint, preset, overrides, cost, **training)
    place = new_run(config, Path(out), name=name, log=log, start=begun)
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
    `state.learner.policy` is the policy; metrics are arrays over the updates. Seed i of
    `canary.train` has the key `fold_in(key(0), i)`. No files are written. A non-finite number does
    not raise an error; it makes the metric "fault" positive.
    """
    said = (algorithm, constraint, total_steps, preset, overrides, cost)
    if isinstance(env, RunConfig):
        config = env
        if said != ("canary", None, None, "fast", (), None):
            raise CanaryError("A configuration is complete; leave out the other arguments.")
    else:
        training = {} if total_steps is None else {"total_steps": total_steps}
        config = make_config(env, algorithm, constraint, preset, overrides, cost, **training)
    if isinstance(config.environment, GymnasiumEnvironment):
        raise CanaryError(
            f"{config.environment_name} is stepped outside JAX, so its training is not "
            "a pure function; use canary.train."
        )
    prepare_devices()
    # Under vmap both branches of the merging of equal inputs would run.
    config = replace(config, training=replace(config.training, merge_capacity=0))
    trainer = make_trainer(with_initial_std(config, initial_std(config)))

    def train(
        key: PRNGKeyArray, limit: Number | None = None, epsilon: Number | None = None
    ) -> tuple[TrainingState, Metrics]:
        terms = _with_numbers(config, make_terms(config), limit=limit, epsilon=epsilon)
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            key = jax.random.wrap_key_data(key)  # an old-style key
        return train_whole(trainer, terms, key, config.training.updates)

    return train


def _with_numbers(config: RunConfig, terms: Terms, **numbers: Number | None) -> Terms:
    """The terms with another limit and epsilon. Only Python's numbers can be checked, not traced
    ones."""
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
                f"{name} must have the shape {terms.limit.shape}, not {array.shape}; use "
                "jax.vmap for several."
            )
    return replace(terms, **arrays)
