"""`canary evaluate --video`: the worst episode beside the median one."""

import importlib
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

from canary.constraints import one_cost
from canary.environments.failures import explain_failures
from canary.environments.protocol import close, stated_drawing
from canary.environments.settings import name_of_environment
from canary.errors import CanaryError
from canary.evaluation import Recorder, make_recorder
from canary.rendering.episode import Drawing, Picture, RecordedEpisode, frame_moments
from canary.rendering.panel import compose
from canary.rendering.video import encode, frame_rate, video_format
from canary.runs import files
from canary.runs.policies import EvaluationPlan, FrozenPolicies, play

Progress = Callable[[int, int, str], None]
"""Called with the frames drawn, their number (0: not known yet), and what is being done."""


@dataclass(frozen=True, kw_only=True)
class VideoRequest:
    """What to draw, and into which file."""

    path: str | Path | None = None
    """A .gif or .mp4 file; None: video.gif in the run directory."""
    drawing: Drawing | None = None
    """How to draw an environment that canary has no drawing of."""
    most_frames: int = 300
    """Longer episodes are shown every 2nd, 3rd, ... step."""
    progress: Progress = lambda done, total, what: None

    def __post_init__(self):
        most = self.most_frames
        if isinstance(most, bool) or not isinstance(most, int) or most < 2:
            raise CanaryError(
                f"A video needs a whole number of at least 2 frames, not most_frames={most!r}."
            )


@dataclass(frozen=True)
class VideoPlan:
    """A request that was checked: there is a drawing, and the file can be written."""

    request: VideoRequest
    path: Path
    format: str
    drawing: Drawing


def plan_video(request: VideoRequest, environment: Any, run: Path) -> VideoPlan:
    """Find mistakes before any episode is played."""
    path = run / "video.gif" if request.path is None else Path(request.path)
    format = video_format(path.name)
    files.check_target(path)
    if not path.parent.is_dir():
        raise CanaryError(
            f"There is no place for the video {path}; name a file in a directory that exists."
        )
    return VideoPlan(request, path, format, request.drawing or drawing_for(environment))


def drawing_for(environment: Any) -> Drawing:
    """The drawing of an environment, if there is one and it can work here."""
    drawing = stated_drawing(environment)
    if drawing is None:
        raise CanaryError(
            f"canary has no drawing of {name_of_environment(environment)}; name one in its class, "
            'drawing = "module:function", or pass one in Python: run.video(drawing=...), see '
            "docs/rendering.md."
        )
    if not isinstance(drawing, str):
        return drawing
    module, _, function = drawing.partition(":")
    home = importlib.import_module(module)
    getattr(home, "check_graphics", lambda environment: None)(environment)
    return getattr(home, function)


def play_and_film(
    plan: VideoPlan,
    policies: FrozenPolicies,
    evaluation: EvaluationPlan,
    report: Callable[[int, int], None] = lambda seed, count: None,
) -> tuple[pl.DataFrame, float, dict[str, Any]]:
    """Play the evaluation and draw its worst and median episode: the table of episodes, the seconds
    it took, and what was drawn as JSON data.

    One program evaluates and records, so the recorded episodes are the evaluated ones.
    """
    recorder = make_recorder(
        policies.config.environment, policies.account, deterministic=evaluation.deterministic
    )
    table, seconds = play(policies, evaluation, report, program=recorder.play)
    rows = choose(table)
    plan.request.progress(0, 0, "recording the two episodes")
    captions = {"worst": f"worst of {len(table):,} episodes", "median": "median"}
    episodes = {
        name: recorded(policies, evaluation, row, captions[name], recorder)
        for name, row in rows.items()
    }
    for name, episode in episodes.items():
        if not np.isclose(rows[name]["cost"], episode.cost, rtol=1e-6, atol=1e-6):
            warnings.warn(
                f"Episode {episode.number} of seed {episode.seed} cost {rows[name]['cost']:g} in "
                f"the evaluation and {episode.cost:g} in the video: the environment is not a "
                "function of its keys.",
                stacklevel=2,
            )
    frames, rate = write_video(plan, policies.config, list(episodes.values()))
    made = {"path": str(plan.path), "frames": frames, "frames_per_second": rate}
    shown = {
        name: {"seed": one.seed, "episode": one.number, "cost": one.cost, "steps": one.length}
        for name, one in episodes.items()
    }
    return table, seconds, made | shown


def choose(table: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """The worst and the median of all episodes by cost, over all seeds.

    Of several worst ones, the one of least return. The median is an episode that was played (of an
    even number, the lower of the two in the middle); of several with its cost, one of middling
    return.
    """
    order = table.sort("cost", "return", descending=[True, False], maintain_order=True)
    middle = table["cost"].sort()[(len(table) - 1) // 2]
    typical = table.filter(pl.col("cost") == middle).sort("return", maintain_order=True)
    return {
        "worst": order.row(0, named=True),
        "median": typical.row((len(typical) - 1) // 2, named=True),
    }


def recorded(
    policies: FrozenPolicies,
    plan: EvaluationPlan,
    row: dict[str, Any],
    caption: str,
    recorder: Recorder,
) -> RecordedEpisode:
    """The evaluated episode of a row, with all its states."""
    environment, number = policies.config.environment, row["episode"]
    keys = plan.keys(row["seed"], number // plan.batch * plan.batch)
    with explain_failures(environment):
        film = recorder.film(*policies.of_seed(row["seed"]), keys, number % plan.batch)
        lane = jax.device_get(film)
    close(environment)
    played = slice(int(lane.length.max()) + 1)
    lane = jax.tree.map(operator.itemgetter(played), jax.tree.map(np.asarray, lane))
    return RecordedEpisode(
        caption=caption,
        seed=row["seed"],
        number=number,
        states=lane.environment,
        spent=lane.spent,
        reward=lane.reward,
    )


def write_video(plan: VideoPlan, config: Any, episodes: list[RecordedEpisode]) -> tuple[int, float]:
    """Draw the episodes side by side; returns the number of frames and the frames per second."""
    longest = max(episode.length for episode in episodes)
    moments = frame_moments(longest, plan.request.most_frames).tolist()
    what = f"{config.algorithm_name} on {config.environment_name}   {config.constraint.text}"
    frames = compose(
        config.environment, episodes, plan.drawing,
        limit=one_cost(config.constraint, "A video").limit, title=what, moments=moments,
    )  # fmt: skip
    rate = frame_rate(len(moments))
    data = encode(_counted(frames, len(moments), plan.request.progress), plan.format, rate)
    files.write_atomically(plan.path, data)
    return len(moments), rate


def _counted(frames: Iterable[Picture], total: int, progress: Progress) -> Iterator[Picture]:
    for done, frame in enumerate(frames):
        progress(done, total, "drawing")
        yield frame
    progress(total, total, "writing the file")
