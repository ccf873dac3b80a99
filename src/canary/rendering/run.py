"""`canary evaluate --video`: the worst episode beside the median one."""

import importlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

from canary.constraints import one_cost
from canary.environments.protocol import name_of_environment
from canary.errors import CanaryError
from canary.evaluation import make_player
from canary.rendering.panel import Drawing, Picture, RecordedEpisode, compose, frame_moments
from canary.rendering.video import encode, frame_rate, video_format
from canary.runs import files
from canary.runs.policies import EvaluationPlan, FrozenPolicies, play

Progress = Callable[[int, int, str], None]
"""Called with the number of drawn frames, of all frames (0: not known yet), and what is done."""


@dataclass(frozen=True, kw_only=True)
class VideoRequest:
    """Choices of a video."""

    path: str | Path | None = None
    """A .gif or .mp4 file; None: video.gif in the run directory."""
    drawing: Drawing | None = None
    """A drawing of an environment that canary cannot draw."""
    most_frames: int = 300
    """Largest number of frames; longer episodes show every 2nd, 3rd, ... step."""
    progress: Progress = lambda done, total, what: None


def drawing_for(environment: Any) -> Drawing:
    """The drawing that an environment names; raises if it cannot be used here."""
    drawing = getattr(environment, "drawing", None)
    if drawing is None:
        raise CanaryError(
            f"canary has no drawing of {name_of_environment(environment)}; pass one in Python, "
            "run.video(drawing=...), or name one in its class (docs/rendering.md)."
        )
    if not isinstance(drawing, str):
        return drawing
    module, _, function = drawing.partition(":")
    home = importlib.import_module(module)
    if hasattr(home, "check_graphics"):
        home.check_graphics(environment)
    return getattr(home, function)


def play_and_film(
    request: VideoRequest,
    policies: FrozenPolicies,
    plan: EvaluationPlan,
    run: Path,
    report: Callable[[int, int], None] = lambda seed, count: None,
) -> tuple[pl.DataFrame, float, dict[str, Any]]:
    """Play the evaluation and draw its worst and median episode. Returns the table of episodes, the
    seconds it took, and JSON data about the video.

    Mistakes in the request are found before any episode is played. The same program evaluates and
    records, so the recorded episodes are the evaluated ones.
    """
    config, path = policies.config, Path(request.path or run / "video.gif")
    format, limit = video_format(path.name), one_cost(config.constraint, "A video").limit
    files.check_target(path)
    if not path.parent.is_dir():
        raise CanaryError(f"There is no directory {path.parent} for the video {path.name}.")
    drawing = request.drawing or drawing_for(config.environment)
    player = filming_player(policies, plan)
    table, seconds = play(policies, plan, report, program=player)
    request.progress(0, 0, "recording the two episodes")
    captions = {"worst": f"worst of {len(table):,} episodes", "median": "median"}
    episodes = {
        name: recorded(policies, plan, row, captions[name], player)
        for name, row in choose(table).items()
    }
    moments = frame_moments(max(one.length for one in episodes.values()), request.most_frames)
    rate, total = frame_rate(len(moments)), len(moments)
    title = f"{config.algorithm_name} on {config.environment_name}   {config.constraint.text}"

    def frames() -> Iterator[Picture]:
        shown = compose(
            config.environment, list(episodes.values()), drawing, limit=limit, title=title,
            moments=moments,
        )  # fmt: skip
        for done, frame in enumerate(shown):
            request.progress(done, total, "drawing")
            yield frame
        request.progress(total, total, "writing the file")

    files.write_atomically(path, encode(frames(), format, rate))
    shown = {
        name: {"seed": one.seed, "episode": one.number, "cost": one.cost, "steps": one.length}
        for name, one in episodes.items()
    }
    made = {"path": str(path), "frames": total, "frames_per_second": rate}
    return table, seconds, made | shown


def choose(table: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """The worst and the median of all episodes by cost, over all seeds.

    Among equal costs, the worst episode has the lowest return and the median episode a middle one.
    For an even number of episodes the median is the lower of the two.
    """
    order = table.sort("cost", "return", descending=[True, False], maintain_order=True)
    middle = table["cost"].sort()[(len(table) - 1) // 2]
    typical = table.filter(pl.col("cost") == middle).sort("return", maintain_order=True)
    return {
        "worst": order.row(0, named=True),
        "median": typical.row((len(typical) - 1) // 2, named=True),
    }


def filming_player(policies: FrozenPolicies, plan: EvaluationPlan) -> Any:
    """A player for this evaluation that can film its episodes."""
    environment, account = policies.config.environment, policies.account
    return make_player(environment, account, deterministic=plan.deterministic, filming=True)


def recorded(
    policies: FrozenPolicies, plan: EvaluationPlan, row: dict[str, Any], caption: str, player: Any
) -> RecordedEpisode:
    """The evaluated episode of a row, with all states."""
    number = row["episode"]
    keys = plan.keys(row["seed"], number // plan.batch * plan.batch)
    film = player.film(*policies.of_seed(row["seed"]), keys, number % plan.batch)
    lane = jax.tree.map(np.asarray, film)
    lane = jax.tree.map(operator.itemgetter(slice(int(lane.length.max()) + 1)), lane)
    return RecordedEpisode(
        caption=caption,
        seed=row["seed"],
        number=number,
        states=lane.environment,
        spent=lane.spent,
        reward=lane.reward,
    )
