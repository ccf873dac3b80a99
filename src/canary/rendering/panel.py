"""Episodes side by side: caption, picture, and the cost so far against the limit, red above it.

matplotlib draws at 72 dots per inch, so that a point is a pixel.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform

from canary.environments.protocol import EnvironmentState
from canary.errors import CanaryError

# Blue, red, grey and green of the report's figures. Red always means: above the limit.
INK, GREY, PALE, WHITE = "#26323d", "#8a8a8a", "#f2f3f5", "#ffffff"
BLUE, RED, GREEN = "#2f6db5", "#c8443c", "#3a9a5b"
AMBER, CANARY = "#e8962e", "#fbd24b"

SIZE, MARGIN = 480, 24  # side of a picture, and margin around it
HEADING, CAPTION, ACCOUNT, CHART = 50, 52, 40, 100  # heights of the other stripes
HEIGHT = HEADING + CAPTION + SIZE + ACCOUNT + CHART + MARGIN
TOP = HEADING + CAPTION  # upper edge of the pictures
FRAME = np.pad(np.zeros((SIZE - 8, SIZE - 8), bool), 4, constant_values=True)

Picture = UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True, kw_only=True)
class RecordedEpisode:
    """States, spent cost and return at times 0 (after the reset), 1, ..., length, as numpy arrays
    in raw units."""

    caption: str
    """A text such as "worst of 200 episodes"."""
    seed: int
    number: int
    """The index of the episode among those of seed `seed` in the evaluation."""
    states: EnvironmentState
    """The states; the first axis of every leaf is time."""
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
moment. Moments are increasing times from 0 to the episode's length."""


def blank(width: int, height: int, colour: str = WHITE) -> Figure:
    figure = Figure((width / 72, height / 72), dpi=72, facecolor=colour)
    FigureCanvasAgg(figure)
    return figure


def square(size: int, centre: np.ndarray, half: float, colour: str) -> Axes:
    """A square picture, `half` in each direction from the centre, y upwards."""
    axes = blank(size, size, colour).add_axes((0, 0, 1, 1))
    axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))
    axes.set_axis_off()
    return axes


def pixels(figure: Any) -> Picture:
    """The pixels of the figure."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()


def frame_moments(length: int, most: int) -> list[int]:
    """The times of at most `most` frames: every step, or every 2nd, 3rd, ... step, and the last."""
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
    """A frame per moment with all episodes side by side; an ended one shows its last state."""
    top = 1.12 * max(limit, *(float(np.max(episode.spent)) for episode in episodes))
    span, width = max(one.length for one in episodes), len(episodes) * (SIZE + MARGIN) + MARGIN
    frame = blank(width, HEIGHT)
    _write(frame, MARGIN, 20, title.replace("<=", "≤"), color=GREY, size=14)
    if len(moments) > 2 and moments[1] > 1:
        pace = f"one frame every {moments[1]} steps"
        _write(frame, width - MARGIN, 20, pace, color=GREY, size=14, ha="right")
    columns = [
        _Column(frame, MARGIN + place * (SIZE + MARGIN), one, limit, top, span)
        for place, one in enumerate(episodes)
    ]
    drawn = [
        iter(drawing(environment, one, sorted({min(m, one.length) for m in moments}), SIZE))
        for one in episodes
    ]
    before = -1
    for now in moments:
        for column, pictures in zip(columns, drawn, strict=True):
            if before < column.episode.length:
                column.show(next(pictures, None), min(now, column.episode.length))
        before, shown = now, pixels(frame)
        for column in columns:
            shown[TOP : TOP + SIZE, column.left : column.left + SIZE] = column.picture
        yield shown


class _Column:
    """One episode: caption, picture, cost, and a step plot of the cost over time."""

    def __init__(
        self,
        frame: Figure,
        left: int,
        episode: RecordedEpisode,
        limit: float,
        top: float,
        span: int,
    ):
        self.episode, self.left, self._limit = episode, left, limit
        self.picture = np.zeros((SIZE, SIZE, 3), np.uint8)
        above = f" > {limit:g}" if episode.cost > limit else ""
        caption = f"{episode.caption}: cost {_amount(episode.cost)}{above}"
        self._caption = _write(frame, left, HEADING + 2, caption, size=17, weight="bold")
        self._origin = _write(frame, left, HEADING + 27, "", color=GREY, size=13)
        line = TOP + SIZE + 12
        self._spent = _write(frame, left, line, "", size=16, weight="bold")
        self._step = _write(frame, left + SIZE, line + 2, "", color=GREY, size=14, ha="right")
        place = np.array([left, MARGIN, SIZE - 76, CHART - 6]) / np.tile(frame.bbox.size, 2)
        self._chart = frame.add_axes(place.tolist())
        low = min(0.0, float(episode.spent.min()))
        self._chart.set(xlim=(0, span), ylim=(low, top), xticks=[], yticks=[], facecolor=PALE)
        self._chart.spines[["left", "right", "top"]].set_visible(False)
        self._chart.spines["bottom"].set_color(GREY)
        self._chart.axhline(limit, color=INK, linewidth=1.4, dashes=(4, 3))
        (self._stairs,) = self._chart.step([], [], where="post", linewidth=2, clip_on=False)
        (self._end,) = self._chart.plot([], [], "o", markersize=8, clip_on=False)
        self._area = self._chart.fill_between([], [])
        height = HEIGHT - MARGIN - (CHART - 6) * (limit - low) / (top - low)
        _write(frame, left + SIZE - 68, height, f"limit {limit:g}", size=12, va="center")

    def show(self, picture: Any, now: int) -> None:
        kind, shape = getattr(picture, "dtype", type(picture).__name__), np.shape(picture)
        if kind != np.uint8 or shape != (SIZE, SIZE, 3):  # a user's drawing
            raise CanaryError(
                f"A drawing must yield a uint8 array of shape [{SIZE}, {SIZE}, 3] for each moment, "
                f"not {kind}{list(shape)}."
            )
        one, limit = self.episode, self._limit
        spent, time = one.spent[: now + 1], np.arange(now + 1)
        is_over = float(spent[-1]) > limit
        self.picture = np.array(picture)
        if is_over:
            self.picture[FRAME] = list(bytes.fromhex(RED[1:]))
        self._caption.set_color(RED if is_over else INK)
        gained = f"return {_amount(float(one.reward[now]))}"
        self._origin.set_text(f"seed {one.seed}, episode {one.number}, {gained}")
        words = f"> limit {limit:g}" if is_over else f"of {limit:g} allowed"
        cost = f"cost {_amount(float(spent[-1]))} {words}"
        self._spent.set(text=cost, color=RED if is_over else INK)
        ended = "   ended" if now == one.length else ""
        self._step.set_text(f"step {now} of {one.length}{ended}")
        colour = RED if is_over else BLUE
        self._stairs.set(data=(time, spent), color=colour)
        self._end.set(data=([now], spent[-1:]), color=colour)
        self._area.remove()
        self._area = self._chart.fill_between(time, spent, step="post", color=(colour, 0.25), lw=0)


def _write(frame: Figure, x: float, y: float, text: str, **style: Any) -> Text:
    """Write text at a place in pixels from the upper left corner."""
    style = {"va": "top", "color": INK, "transform": IdentityTransform()} | style
    return frame.text(x, HEIGHT - y, text, None, **style)


def _amount(cost: float) -> str:
    return f"{cost:.1f}" if abs(cost) < 1000 else f"{cost:,.0f}"
