"""Train and load: a `Run`, and what can be done with it."""

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import polars as pl

from canary.api import using
from canary.config.config import Overrides, make_config
from canary.config.run_config import RunConfig
from canary.constraints import Constraint
from canary.environments.protocol import Environment, close
from canary.errors import CanaryError
from canary.export.trained_policy import TrainedPolicy
from canary.identity import place_of
from canary.reporting.records import EvaluationSummary, TrainingSummary
from canary.reporting.summary import YARDSTICK, summarise_run
from canary.runs import directory, runner
from canary.runs.directory import find_run
from canary.runs.environment import open_config
from canary.runs.files import sealed
from canary.runs.stored_states import stored_updates
from canary.runs.warm_start import Start, start_from_policy, start_from_run
from canary.terminal.console import evaluation_bar
from canary.watching.watcher import Callback, Watcher

RUNS = Path("runs")


@dataclass(frozen=True)
class Run:
    """A run directory and its configuration; all else is read from the directory when it is asked
    for."""

    directory: Path
    config: RunConfig

    evaluate = using.evaluate
    certify = using.certify
    best = using.best
    export = using.export
    video = using.video

    def __repr__(self) -> str:
        config = self.config
        what = f"{config.algorithm_name} on {config.environment_name}, {config.constraint.text}"
        count = len(config.training.seeds)
        seeds = "1 seed" if count == 1 else f"{count} seeds"
        return f"<canary.Run {self.directory}: {what}, {seeds}>"

    def summary(self) -> TrainingSummary:
        """The numbers of the paper's table over the second half of training, and what was
        trained."""
        return cast(TrainingSummary, summarise_run(self.directory))

    @property
    def metrics(self) -> pl.DataFrame:
        """One row per seed and update."""
        return directory.read(self.directory, "metrics")

    @property
    def episodes(self) -> pl.DataFrame:
        """One row per episode of training."""
        return directory.read(self.directory, "episodes")

    @property
    def stored_steps(self) -> list[int]:
        """The steps whose policies can be loaded: those of the newest states, and of those that
        were kept."""
        return [
            update * self.config.training.batch for update in sorted(stored_updates(self.directory))
        ]

    def policy(self, seed: int | None = None, *, step: int | None = None) -> TrainedPolicy:
        """The policy of a seed (the first, if not said), after so many steps (the newest, if not
        said)."""
        policies = using.loaded(self, step)
        seed = self.config.training.seeds[0] if seed is None else seed
        chosen, statistics = policies.of_seed(seed)
        place = place_of(self.config.environment, self.config.environment_name)
        return TrainedPolicy(
            chosen, statistics, policies.account, place, policies.risk_critics(seed)
        )

    def plot(self, path: str | Path | None = None) -> Path:
        """Draw return, constraint and cost over training into a .png file; training.png in the run,
        if not said."""
        from canary.reporting import figures  # matplotlib takes a second: only where it is needed

        place = self.directory / "training.png" if path is None else Path(path)
        arguments = figures.figure_arguments(directory.read_config(self.directory))
        figures.save(figures.training_figure(self.episodes, **arguments), place)
        return place

    def resume(
        self,
        *,
        total_steps: int | None = None,
        callback: Callback | None = None,
        log: str | Sequence[str] = (),
        quiet: bool = False,
        final_check: bool = True,
    ) -> "Run":
        """Train on to the planned number of steps, or to a larger `total_steps`; a finished run
        stays as it is.

        With more steps, schedules such as learning rates run over the longer plan, from where that
        is now.
        """
        runner.resume_run(
            self.directory,
            environment=self.config.environment,
            quiet=quiet,
            total_steps=total_steps,
            watcher=Watcher(callback, using.texts("log", log)),
        )
        steps = directory.read_config(self.directory)["training"]["total_steps"]
        training = replace(self.config.training, total_steps=steps)
        run = replace(self, config=replace(self.config, training=training))
        return _finish(run, final_check=final_check, quiet=quiet)


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during training, after everything was saved; `run` can be resumed."""

    def __init__(self, run: Run):
        super().__init__(
            f"training was interrupted; canary.load({str(run.directory)!r}).resume() goes on"
        )
        self.run = run


def train(
    env: str | Environment = "IcyLake",
    algorithm: str = "canary",
    constraint: Constraint | Mapping[str, Any] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    total_steps: int | None = None,
    preset: str = "fast",
    out: str | Path = RUNS,
    overrides: Overrides = (),
    cost: str | None = None,
    name: str | None = None,
    tags: str | Sequence[str] = (),
    callback: Callback | None = None,
    log: str | Sequence[str] = (),
    quiet: bool = False,
    final_check: bool = True,
    start: "Run | TrainedPolicy | Start | str | Path | None" = None,
) -> Run:
    """Train and return the run.

    `env` is an environment, the name of one of ours, or a reference such as "my_package.shop:Shop"
    or "gymnasium:Pendulum-v1" (docs/environments/your-own.md); of other packages `cost` says where
    the cost is. `seeds` says how many (4 means 0 to 3, if not said) or which; `total_steps` are
    environment steps per seed. The `constraint` is a `Chance`, a `Mean` or a `CVaR`, or some of "kind", "limit" and
    "epsilon" where the rest is the environment's own. `overrides` change single settings,
    {"algo.dead_zone": 0.6} or ("algo.dead_zone=0.6",). Ctrl-C saves and raises
    `TrainingInterrupted`, a KeyboardInterrupt that knows its `run`.

    `name` is what the run is called below `out`, `tags` are words to find it by. `callback` gets a
    `canary.Update` after every update, and stops training there by returning False; `log` names
    logs for other tools, "csv", "tensorboard" or "wandb" (docs/watching.md). At the end the frozen
    policies play up to 300 fresh episodes per seed, unless `final_check` is False; the summary has
    them under "final_check".

    `start` begins with what another run has learnt, its policy, normaliser and critics, seed by
    seed (those of the run, if `seeds` are not said); or with one policy, `run.policy(seed=2)`.
    Limit, settings and environment may be others, as long as observations, actions and networks
    have the same sizes.
    """
    begun = _start(start, Path(out))
    if seeds is None:
        seeds = 4 if begun is None or begun.seed is not None else begun.seeds
    training = {"seeds": using.seed_ids(seeds)} | (
        {} if total_steps is None else {"total_steps": total_steps}
    )
    config = make_config(env, algorithm, constraint, preset, overrides, cost, **training)
    watcher, words = Watcher(callback, using.texts("log", log)), using.texts("tags", tags)
    place = runner.start_run(
        config, Path(out), quiet=quiet, name=name, tags=words, watcher=watcher, start=begun
    )
    return _finish(Run(place, config), final_check=final_check, quiet=quiet)


def _start(start: "Run | TrainedPolicy | Start | str | Path | None", out: Path) -> Start | None:
    """What training begins with, as arrays."""
    if start is None or isinstance(start, Start):
        return start
    if isinstance(start, TrainedPolicy):
        return start_from_policy(start.policy, start.statistics, start.sha256)
    if isinstance(start, Run):
        return start_from_run(start.directory)
    if not isinstance(start, str | Path):
        raise CanaryError(f"start must be a run or a policy of one, not {start!r:.60}.")
    return start_from_run(directory.find_run(str(start), out))


def load(
    path: str | Path = "latest",
    environment: Environment | None = None,
    *,
    out: str | Path = RUNS,
    trust: bool = False,
    accept_change: bool = False,
) -> Run:
    """The run of that path, or of that name below `out`, or the newest.

    A run that was trained on code of your own makes its environment again: pass it as
    `environment`, or say `trust` once to let the code that the run names be imported. Another
    environment than the run's is refused, unless you `accept_change`: the run can then be evaluated
    and certified, which says what is different, but neither trained on nor exported.
    """
    place = directory.find_run(str(path), Path(out))
    return Run(place, open_config(place, environment, trust=trust, accept_change=accept_change))


# How many episodes the final policies are checked on: the most that take a small share of the steps
# of training. A few sizes alone, so that their programs are found in the cache.
CHECK_EPISODES, CHECK_SHARE = (300, 200, 100, 50, 20), 0.05
YARDSTICK_EPISODES, YARDSTICK_SECONDS = 64, 10.0


def _finish(run: Run, *, final_check: bool, quiet: bool) -> Run:
    """Check the final policies, leave the summary and the figure beside the data, and pass an
    interruption on to the caller."""
    summary = run.summary()
    is_over = summary["status"] in ("finished", "stopped")
    if final_check and is_over and summary["final_check"] is None:
        length = summary["length_mean"] or run.config.environment.horizon
        affordable = CHECK_SHARE * summary["total_steps"] / length
        episodes = next((count for count in CHECK_EPISODES if count <= affordable), 0)
        if episodes:
            summary["final_check"] = _check(run, episodes, quiet=quiet)
        if summary["warnings"]:
            summary["yardstick"] = _yardstick(run)
    directory.write_json(run.directory / "summary.json", sealed(dict(summary)))
    if run.episodes["valid"].any():
        run.plot()
    if summary["status"] == "interrupted":
        raise TrainingInterrupted(run)
    return run


def _check(run: Run, episodes: int, *, quiet: bool) -> EvaluationSummary | None:
    """The final policies on fresh episodes; a run whose environment fails now is a run all the
    same."""
    count = episodes * len(run.config.training.seeds)
    try:
        with evaluation_bar(count, quiet=quiet) as (report, _):
            return using.evaluate(run, episodes, report=report)
    except CanaryError as error:
        warnings.warn(f"The final policies were not checked: {error}", stacklevel=3)
        return None


def _yardstick(run: Run) -> str | None:
    """Whether a constant or random action stays within the limit, in a sentence that is kept in the
    run."""
    from canary.checking.yardstick import Player, known_sentence

    config, until = run.config, time.monotonic() + YARDSTICK_SECONDS
    try:
        player = Player(config.environment)
        played = player.play(YARDSTICK_EPISODES, lambda *_: time.monotonic() < until)
        sentence = known_sentence(played, config.constraint)
        rows = [one.to_dict(config.constraint) for one in played]
        record = sealed({"sentence": sentence, "policies": rows})
        directory.write_json(run.directory / YARDSTICK, record)
    except CanaryError:  # the training is worth keeping without it
        return None
    finally:
        close(config.environment)
    return sentence


def compare(
    runs: Sequence[Run | str | Path], *, figure: str | Path | None = None, out: str | Path = RUNS
) -> dict[str, Any]:
    """Runs of one environment beside each other, over the second half of training.

    Under "runs", of each: the settings in which it "differs", "return_mean" and "constraint_value"
    with 95% intervals over seeds, "safe_seeds", and "return_against_first", seed by seed.

    A run may be its path or its name below `out`; `figure` names a .png of their curves.
    """
    # Matplotlib takes a second: only where it is needed
    from canary.reporting.comparison import (
        compare_runs,
    )

    places = [
        run.directory if isinstance(run, Run) else find_run(str(run), Path(out)) for run in runs
    ]
    return compare_runs(places, None if figure is None else Path(figure))
