"""`canary evaluate --video`: the worst episode beside the median one, played again and drawn.

An evaluation keeps only how its episodes ended. The two that are shown are played again from their
keys, with every state recorded.
"""

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

from canary.environments.failures import told_failures
from canary.environments.protocol import close, stated_drawing
from canary.environments.settings import name_of_environment
from canary.errors import CanaryError
from canary.evaluation import make_film
from canary.rendering.episode import Drawing, Picture, RecordedEpisode, frame_moments
from canary.rendering.panel import compose
from canary.rendering.video import encode, frame_rate, video_format
from canary.runs import directory
from canary.runs.policies import EvaluationPlan, FrozenPolicies
from canary.terminal.formatting import title

Progress = Callable[[int, int, str], None]
"""Called with the frames drawn, their number (0: not known yet), and what is being done."""


@dataclass(frozen=True, kw_only=True)
class VideoRequest:
    """What to draw and where to."""

    path: str | Path | None = None
    """A .gif or .mp4 file; None: video.gif in the run directory."""
    drawing: Drawing | None = None
    """How to draw an environment that canary has no drawing of."""
    most_frames: int = 300
    """Longer episodes are shown every 2nd, 3rd, ... step."""
    progress: Progress = lambda done, total, what: None

    def __post_init__(self):
        if (
            isinstance(self.most_frames, bool)
            or not isinstance(self.most_frames, int)
            or self.most_frames < 2
        ):
            raise CanaryError(
                "A video needs a whole number of at least 2 frames, not "
                f"most_frames={self.most_frames!r}."
            )


@dataclass(frozen=True)
class VideoPlan:
    """A request that can be met: there is a drawing, and the file can be written."""

    request: VideoRequest
    path: Path
    format: str
    drawing: Drawing


def plan_video(request: VideoRequest, environment: Any, run: Path) -> VideoPlan:
    """Find mistakes before any episode is played."""
    path = run / "video.gif" if request.path is None else Path(request.path)
    format = video_format(path.name)
    if path.is_dir() or not path.parent.is_dir():
        raise CanaryError(
            f"There is no place for the video {path}; name a file in a directory that exists."
        )
    drawing = request.drawing or drawing_for(environment)
    return VideoPlan(request, path, format, drawing)


def make_video(
    plan: VideoPlan, policies: FrozenPolicies, evaluation: EvaluationPlan, table: pl.DataFrame
) -> dict[str, Any]:
    """Draw the worst and the median of the evaluated episodes; returns what was drawn, as JSON
    data."""
    config, request = policies.config, plan.request
    rows = choose(table)
    request.progress(0, 0, "playing the two episodes again")
    episodes = replay(policies, evaluation, rows)
    for row, episode in zip(rows.values(), episodes, strict=True):
        if not np.isclose(row["cost"], episode.cost, rtol=1e-6, atol=1e-6):
            warnings.warn(
                f"Episode {episode.number} of seed {episode.seed} cost {row['cost']:g} when it was "
                f"played first and {episode.cost:g} when it was played again for the video: the "
                "environment is not a function of its keys.",
                stacklevel=2,
            )
    limit = config.constraint.limit
    moments = frame_moments(max(episode.length for episode in episodes), request.most_frames)
    heading = title(config.environment_name, config.algorithm_name, config.constraint.text).plain
    frames = compose(
        config.environment,
        episodes,
        plan.drawing,
        limit=limit,
        title=heading,
        moments=moments.tolist(),
    )
    rate = frame_rate(len(moments))
    data = encode(_counted(frames, len(moments), request.progress), plan.format, rate)
    directory.write_atomically(plan.path, data)
    return {
        "path": str(plan.path),
        "frames": len(moments),
        "frames_per_second": rate,
        **{
            name: {
                "seed": episode.seed,
                "episode": episode.number,
                "cost": episode.cost,
                "steps": episode.length,
            }
            for name, episode in zip(rows, episodes, strict=True)
        },
    }


def choose(table: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """The worst and the median of all episodes by their cost, whatever the seed.

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


def replay(
    policies: FrozenPolicies, plan: EvaluationPlan, rows: dict[str, dict[str, Any]]
) -> list[RecordedEpisode]:
    """The chosen episodes with all their states."""
    environment = policies.config.environment
    film = make_film(
        environment,
        policies.account,
        length=max(row["length"] for row in rows.values()),
        deterministic=plan.deterministic,
    )
    seeds = policies.config.training.seeds if plan.seeds is None else plan.seeds
    captions = {"worst": f"worst of {len(seeds) * plan.episodes:,} episodes", "median": "median"}
    episodes = []
    for name, row in rows.items():
        place, first = row["episode"] % plan.batch, row["episode"] // plan.batch * plan.batch
        policy, keys = policies.of_seed(row["seed"]), plan.keys(row["seed"], first)
        with told_failures(environment):
            lane = jax.tree.map(np.asarray, film(*policy, keys, place))
        lane = jax.tree.map(operator.itemgetter(slice(int(lane.length[-1]) + 1)), lane)
        episodes.append(
            RecordedEpisode(
                caption=captions[name],
                seed=row["seed"],
                number=row["episode"],
                states=lane.environment,
                spent=lane.spent,
                reward=lane.reward,
            )
        )
    close(environment)
    return episodes


def _counted(frames: Iterable[Picture], total: int, progress: Progress) -> Iterator[Picture]:
    for done, frame in enumerate(frames):
        progress(done, total, "drawing")
        yield frame
    progress(total, total, "writing the file")


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
    # It raises a sentence if it cannot work on this machine.
    getattr(home, "check_graphics", lambda environment: None)(environment)
    return getattr(home, function)
