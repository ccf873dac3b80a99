"""The Python face: train, load and evaluate runs, and act with their policies.

For example:

    run = canary.train("IcyLake", constraint=canary.Chance(limit=5.5, epsilon=0.02), seeds=4)
    run.summary()["violation_probability"]
    episode = run.policy(seed=0).start()
    action = episode.act(observation)
    episode.spend(cost)  # what the environment then charged for it
"""

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from canary.config.config import Overrides, make_config
from canary.config.run_config import RunConfig
from canary.constraints import Constraint
from canary.environments.protocol import Environment
from canary.errors import CanaryError
from canary.export.trained_policy import TrainedPolicy
from canary.identity import place_of
from canary.reporting.summary import summarise_evaluation, summarise_run
from canary.runs import directory, runner
from canary.runs.opening import open_config
from canary.runs.policies import EvaluationPlan, load_policies, play

if TYPE_CHECKING:
    from canary.rendering.episode import Drawing
    from canary.rendering.run import VideoRequest

RUNS = Path("runs")


@dataclass(frozen=True)
class Run:
    """A run directory and its configuration; all else is read from the directory when it is asked for."""

    directory: Path
    config: RunConfig

    def summary(self) -> dict[str, Any]:
        """The numbers of the paper's table over the second half of training, and what was trained."""
        return summarise_run(self.directory)

    @property
    def metrics(self) -> pl.DataFrame:
        """One row per seed and update."""
        return directory.read(self.directory, "metrics")

    @property
    def episodes(self) -> pl.DataFrame:
        """One row per episode of training."""
        return directory.read(self.directory, "episodes")

    def policy(self, seed: int | None = None) -> TrainedPolicy:
        """The policy of a seed (the first, if not said) as the newest intact checkpoint has it."""
        policies = load_policies(self.config, self.directory)
        _warn(policies.notes)
        seed = self.config.training.seeds[0] if seed is None else seed
        chosen, statistics = policies.of_seed(seed)
        environment = self.config.environment
        return TrainedPolicy(
            chosen,
            statistics,
            policies.account,
            place_of(environment, self.config.environment_name),
            policies.risk_critics(seed),
        )

    def video(
        self,
        path: str | Path | None = None,
        episodes: int = 200,
        *,
        drawing: "Drawing | None" = None,
        most_frames: int = 300,
        **how: Any,
    ) -> Path:
        """A .gif or .mp4 of the worst of so many fresh episodes beside the median one; video.gif in the run, if not said.

        `drawing` draws an environment that canary cannot (docs/rendering.md); `how` holds arguments of `canary.evaluate`.
        """
        from canary.rendering.run import VideoRequest

        request = VideoRequest(path=path, drawing=drawing, most_frames=most_frames)
        return Path(evaluate(self, episodes, video=request, **how)["video"]["path"])

    def resume(self, *, force: bool = False, quiet: bool = False) -> "Run":
        """Train on to the planned number of steps; a finished run stays as it is.

        `force` takes the run over from a process on another machine that seems to hold it.
        """
        runner.resume_run(
            self.directory,
            environment=self.config.environment,
            accept_change=bool(self.config.environment_changes),
            force=force,
            quiet=quiet,
        )
        return _finish(self)


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during training, after everything was saved; `run` can be resumed."""

    def __init__(self, run: Run):
        super().__init__(f"training was interrupted; canary.load({str(run.directory)!r}).resume() goes on")
        self.run = run


def train(
    env: str | Environment = "IcyLake",
    algorithm: str = "canary",
    constraint: Constraint | Mapping[str, Any] | None = None,
    *,
    seeds: int | Sequence[int] = 4,
    total_steps: int | None = None,
    preset: str = "fast",
    out: str | Path = RUNS,
    overrides: Overrides = (),
    cost: str | None = None,
    quiet: bool = False,
) -> Run:
    """Train and return the run.

    `env` is an environment, the name of one of ours, or a reference such as "my_package.shop:Shop" or
    "gymnasium:Pendulum-v1" (docs/environments/your-own.md); of other packages `cost` says where the cost is.
    `seeds` says how many (0, 1, ...) or which; `total_steps` are environment steps per seed. The `constraint` is a `Chance`,
    a `Mean` or a `CVaR`, or some of "kind", "limit" and "epsilon" where the rest is the environment's own. `overrides`
    change single settings, {"algo.target_kl": 0.02} or ("algo.target_kl=0.02",). Ctrl-C saves and raises
    `TrainingInterrupted`, a KeyboardInterrupt that knows its `run`.
    """
    training = {"seeds": seed_ids(seeds)} | ({} if total_steps is None else {"total_steps": total_steps})
    config = make_config(env, algorithm, constraint, preset, overrides, cost, **training)
    return _finish(Run(runner.start_run(config, Path(out), quiet=quiet), config))


def load(
    path: str | Path = "latest",
    environment: Environment | None = None,
    *,
    out: str | Path = RUNS,
    trust: bool = False,
    accept_change: bool = False,
) -> Run:
    """The run of that path, or of that name below `out`, or the newest.

    A run that was trained on code of your own makes its environment again: pass it as `environment`, or say `trust` once to
    let the code that the run names be imported. Another environment than the run's is refused, unless you `accept_change`.
    """
    place = directory.find_run(str(path), Path(out))
    return Run(place, open_config(place, environment, trust=trust, accept_change=accept_change))


def evaluate(
    run: Run | str | Path,
    episodes: int = 1000,
    *,
    seeds: Sequence[int] | None = None,
    deterministic: bool = False,
    evaluation_seed: int = 0,
    report: Callable[[int, int], None] = lambda seed, count: None,
    video: "VideoRequest | None" = None,
) -> dict[str, Any]:
    """The summary of so many fresh episodes of each seed's frozen policy.

    `report(seed, episodes)` is called after every batch. With a `video`, the worst and the median episode are drawn, and
    the summary says under "video" what was written; `Run.video` is the short way.
    """
    run = run if isinstance(run, Run) else load(run)
    chosen = None if seeds is None else seed_ids(seeds)
    plan = EvaluationPlan(
        episodes=episodes, seeds=chosen, deterministic=deterministic, evaluation_seed=evaluation_seed
    )
    film = None if video is None else _film(video, run)
    policies = load_policies(run.config, run.directory)
    _warn(policies.notes)
    table, seconds = play(policies, plan, report)
    how = {"deterministic": deterministic, "evaluation_seed": evaluation_seed, "updates": policies.iteration}
    digests = {
        str(seed): policies.identity(seed).sha256 for seed in table["seed"].unique(maintain_order=True)
    }
    how |= {"policy_sha256": digests}
    drawn = {} if film is None else {"video": film(policies, plan, table)}
    return summarise_evaluation(run.directory, table, seconds) | how | drawn


def certify(run: Run | str | Path, *, quiet: bool = True, **request: Any) -> dict[str, Any]:
    """A certificate from fresh episodes of the run's frozen policies, also written into the run.

    `request` holds fields of `canary.certification.run.Request`: confidence, episodes, early_stop, seeds, shift,
    limit, epsilon, ... For a policy that belongs to no run there is `canary.certification.certify`.
    """
    from canary.certification.run import Request, certify_run

    run = run if isinstance(run, Run) else load(run)
    return certify_run(
        run.directory,
        Request(**request),
        environment=run.config.environment,
        accept_change=bool(run.config.environment_changes),
        quiet=quiet,
    )


def seed_ids(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """4 means seeds 0 to 3; a sequence names them."""
    try:
        if isinstance(seeds, bool):
            raise TypeError
        try:
            return tuple(range(operator.index(seeds)))  # type: ignore[arg-type]
        except TypeError:
            return tuple(operator.index(seed) for seed in seeds)  # type: ignore[union-attr]
    except (TypeError, OverflowError, MemoryError):
        raise CanaryError(
            f"seeds must be a number of seeds or a list of whole numbers, not {seeds!r}."
        ) from None


def _film(video: "VideoRequest", run: Run) -> Callable[..., dict[str, Any]]:
    """What draws the video once the episodes are played; mistakes in the request are found now."""
    from canary.rendering import run as videos  # Pillow and matplotlib's fonts: only where they are needed

    return partial(videos.make_video, videos.plan_video(video, run.config.environment, run.directory))


def _finish(run: Run) -> Run:
    """Leave the summary and the figure beside the data, and pass an interruption on to the caller."""
    summary = run.summary()
    directory.write_json(run.directory / "summary.json", summary)
    episodes = run.episodes
    if episodes["valid"].any():
        from canary.reporting import figures  # matplotlib takes a second: only where it is needed

        arguments = figures.figure_arguments(directory.read_config(run.directory))
        figures.save(figures.training_figure(episodes, **arguments), run.directory / "training.png")
    if summary["status"] == "interrupted":
        raise TrainingInterrupted(run)
    return run


def _warn(notes: Sequence[str]) -> None:
    for note in notes:
        warnings.warn(note, stacklevel=3)
