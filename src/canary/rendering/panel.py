"""Episodes side by side: caption, picture, and the cost so far against the limit, red above it."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.environments.protocol import EnvironmentState
from canary.errors import CanaryError
from canary.rendering.canvas import BLUE, GREY, INK, PALE, RED, WHITE, Canvas, Picture, blend

SIZE, MARGIN = 480, 24  # of a picture, and around it
HEADING, CAPTION, ACCOUNT, CHART = 50, 52, 40, 100  # heights of the other stripes
COLUMN = CAPTION + SIZE + ACCOUNT + CHART


@dataclass(frozen=True, kw_only=True)
class RecordedEpisode:
    """States, spent cost and return at times 0 (after the reset), 1, ..., length, as numpy arrays
    in raw units."""

    caption: str
    """Such as "worst of 200 episodes"."""
    seed: int
    number: int
    """It is episode `number` of seed `seed` in the evaluation."""
    states: EnvironmentState
    """The first axis of every leaf is the time."""
    spent: Float[np.ndarray, "time"]
    reward: Float[np.ndarray, "time"]

    @property
    def length(self) -> int:
        return len(self.spent) - 1

    @property
    def cost(self) -> float:
        return float(self.spent[-1])


Drawing = Callable[[Any, RecordedEpisode, Sequence[int], int], Iterator[Picture]]
"""`draw(environment, episode, moments, size)` yields a (size, size, 3) uint8 picture for each
moment. Moments are increasing times between 0 and the episode's length."""


def frame_moments(length: int, most: int) -> list[int]:
    """The times of at most `most` frames: every step or every 2nd, 3rd, ..., and always the last."""
    stride = max(1, -(-length // max(1, most - 1)))
    return [*range(0, length, stride), length]


def compose(
    environment: Any,
    episodes: Sequence[RecordedEpisode],
    drawing: Drawing,
    *,
    limit: float,
    title: str,
    moments: Sequence[int],
) -> Iterator[Picture]:
    """A frame per moment with all episodes side by side; one that has ended shows its last state."""
    top = 1.12 * max(limit, *(float(np.max(episode.spent)) for episode in episodes))
    scale = limit, top, max(episode.length for episode in episodes)
    width = len(episodes) * (SIZE + MARGIN) + MARGIN
    frame = Canvas(width, HEADING + COLUMN + MARGIN, oversampling=1)
    frame.text((MARGIN, 20), title.replace("<=", "≤"), GREY, 14)
    if len(moments) > 2 and moments[1] > 1:
        pace = f"one frame every {moments[1]} steps"
        frame.text((width - MARGIN, 20), pace, GREY, 14, anchor="ra")
    with ExitStack() as stack:
        streams = []
        for one in episodes:
            pictures = drawing(
                environment, one, sorted({min(m, one.length) for m in moments}), SIZE
            )
            if isinstance(pictures, Generator):  # it may hold a window or a device
                stack.callback(pictures.close)
            streams.append(iter(pictures))
        for index, now in enumerate(moments):
            frame = frame.copy()
            for place, (episode, pictures) in enumerate(zip(episodes, streams, strict=True)):
                if index and moments[index - 1] >= episode.length:
                    continue
                column = _column(episode, next(pictures, None), min(now, episode.length), scale)
                frame.paste(column, (MARGIN + place * (SIZE + MARGIN), HEADING))
            yield frame.picture


def _amount(cost: float) -> str:
    return f"{cost:.1f}" if abs(cost) < 1000 else f"{cost:,.0f}"


def _column(
    episode: RecordedEpisode, picture: Any, now: int, scale: tuple[float, float, int]
) -> Picture:
    """One episode at one moment; `scale` is the limit, the top of the chart and the last time."""
    kind, shape = getattr(picture, "dtype", type(picture).__name__), np.shape(picture)
    if kind != np.uint8 or shape != (SIZE, SIZE, 3):  # a user's drawing
        raise CanaryError(
            f"A drawing must yield a uint8 array of shape [{SIZE}, {SIZE}, 3] for each moment, not "
            f"{kind}{list(shape)}."
        )
    limit, spent = scale[0], float(episode.spent[now])
    is_over = spent > limit
    colour = RED if is_over else INK
    canvas = Canvas(SIZE, COLUMN, oversampling=1)
    above = f" > {limit:g}" if episode.cost > limit else ""
    caption = f"{episode.caption}: cost {_amount(episode.cost)}{above}"
    canvas.text((0, 2), caption, colour, 17, bold=True)
    origin = f"seed {episode.seed}, episode {episode.number}"
    canvas.text((0, 27), f"{origin}, return {_amount(float(episode.reward[now]))}", GREY, 13)
    canvas.paste(picture, (0, CAPTION))
    if is_over:
        canvas.box((0, CAPTION), (SIZE - 1, CAPTION + SIZE - 1), None, edge=RED, width=4)
    line = CAPTION + SIZE + 12
    beside = canvas.text((0, line), f"cost {_amount(spent)} ", colour, 16, bold=True)
    words = f"> limit {limit:g}" if is_over else f"of {limit:g} allowed"
    canvas.text((beside, line), words, RED if is_over else GREY, 16)
    step = f"step {now} of {episode.length}" + ("   ended" if now == episode.length else "")
    canvas.text((SIZE, line + 2), step, GREY, 14, anchor="ra")
    canvas.paste(_chart(episode.spent[: now + 1], scale), (0, CAPTION + SIZE + ACCOUNT))
    return canvas.picture


def _chart(spent: Float[np.ndarray, "time"], scale: tuple[float, float, int]) -> Picture:
    """The cost so far as a staircase over time, with the limit as a dashed line."""
    (limit, top, span), right = scale, SIZE - 76
    colour, low = RED if spent[-1] > limit else BLUE, min(0.0, float(spent.min()))

    def place(time: float, cost: float) -> tuple[float, float]:
        return right * time / span, (CHART - 6) * (top - cost) / (top - low)

    canvas = Canvas(SIZE, CHART)
    floor, line = place(0, low)[1], place(0, limit)[1]
    canvas.box((0, 0), (right, floor), blend(PALE, WHITE, 0.45))
    stairs = [place(0, float(spent[0]))]
    for time in (np.flatnonzero(np.diff(spent)) + 1).tolist():
        stairs += [place(time, float(spent[time - 1])), place(time, float(spent[time]))]
    stairs.append(place(len(spent) - 1, float(spent[-1])))
    area = [(stairs[0][0], floor), *stairs, (stairs[-1][0], floor)]
    canvas.polygon(area, blend(colour, WHITE, 0.25))
    canvas.line(stairs, colour, 2)
    for x in range(0, right, 10):
        canvas.line([(x, line), (min(x + 6, right), line)], INK, 1.4)
    canvas.line([(0, floor), (right, floor)], GREY)
    canvas.disc(stairs[-1], 4, colour)
    canvas.text((right + 8, line), f"limit {limit:g}", INK, 12, anchor="lm")
    return canvas.picture
