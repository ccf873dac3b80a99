"""Episodes side by side: caption, picture, and the cost spent so far against the limit, which turns
red above it."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw

from canary.errors import CanaryError
from canary.rendering.canvas import (
    BLUE,
    GREY,
    INK,
    OVERSAMPLING,
    PALE,
    RED,
    WHITE,
    blend,
    canvas,
    font,
    reduced,
)
from canary.rendering.episode import Drawing, Picture, RecordedEpisode

SIZE, MARGIN = 480, 24  # of a picture, and around it
HEADING, CAPTION, ACCOUNT, CHART = (
    50,
    52,
    40,
    100,
)  # heights of the stripes; the picture is the third from the top


def compose(
    environment: Any,
    episodes: Sequence[RecordedEpisode],
    drawing: Drawing,
    *,
    limit: float,
    title: str,
    moments: Sequence[int],
) -> Iterator[Picture]:
    """A frame per moment with all episodes beside each other; one that is over shows its last
    state."""
    top = cost_scale(episodes, limit)
    span = max(episode.length for episode in episodes)

    def stream(episode: RecordedEpisode) -> Iterator[Picture]:
        own = sorted({min(int(now), episode.length) for now in moments})
        return iter(drawing(environment, episode, own, SIZE))

    streams = [stream(episode) for episode in episodes]
    frame, shown = _background(len(episodes), title, moments), [-1] * len(episodes)
    try:
        for now in moments:
            frame = frame.copy()
            for index, (episode, pictures) in enumerate(zip(episodes, streams, strict=True)):
                moment = min(int(now), episode.length)
                if moment == shown[index]:  # it is over: its last state stays
                    continue
                shown[index] = moment
                picture = checked_picture(next(pictures, None))
                column = _column(episode, picture, moment, (limit, top, span))
                frame.paste(column, (MARGIN + index * (SIZE + MARGIN), HEADING))
            yield np.asarray(frame)
    finally:
        for pictures in streams:  # a generator may hold a window or a device
            if isinstance(pictures, Generator):
                pictures.close()


def _background(columns: int, title: str, moments: Sequence[int]) -> Image.Image:
    """What no moment changes: the heading over the columns."""
    width = columns * (SIZE + MARGIN) + MARGIN
    height = HEADING + CAPTION + SIZE + ACCOUNT + CHART + MARGIN
    background = Image.new("RGB", (width, height), WHITE)
    pen = ImageDraw.Draw(background)
    pen.text((MARGIN, 20), title.replace("<=", "≤"), GREY, font(14))
    if len(moments) > 2 and moments[1] > 1:
        pace = f"every {nth(int(moments[1]))} step shown"
        pen.text((width - MARGIN, 20), pace, GREY, font(14), anchor="ra")
    return background


def is_breached(episode: RecordedEpisode, now: int, limit: float) -> bool:
    """Strictly more than the limit has been spent."""
    return bool(episode.spent[now] > limit)


def cost_scale(episodes: Sequence[RecordedEpisode], limit: float) -> float:
    """The cost at the upper end of the charts, the same for all of them."""
    return 1.12 * max(limit, *(float(np.max(episode.spent)) for episode in episodes))


def caption(episode: RecordedEpisode, limit: float) -> str:
    """For example "worst of 200 episodes: cost 8.0 > 5.5"."""
    sign = f" > {limit:g}" if episode.cost > limit else ""
    return f"{episode.caption}: cost {amount(episode.cost)}{sign}"


def amount(cost: float) -> str:
    return f"{cost:.1f}" if abs(cost) < 1000 else f"{cost:,.0f}"


def nth(number: int) -> str:
    ending = (
        "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def checked_picture(picture: Any) -> Picture:
    """A drawing may be somebody else's, so what it yields is looked at before it is used."""
    if not (
        isinstance(picture, np.ndarray)
        and picture.shape == (SIZE, SIZE, 3)
        and picture.dtype == np.uint8
    ):
        what = (
            f"{picture.dtype}{list(picture.shape)}"
            if isinstance(picture, np.ndarray)
            else repr(picture)[:60]
        )
        raise CanaryError(
            f"A drawing must yield a uint8 array of shape [{SIZE}, {SIZE}, 3] for each moment, not "
            f"{what}."
        )
    return picture


def _column(
    episode: RecordedEpisode, picture: Picture, now: int, scale: tuple[float, float, int]
) -> Image.Image:
    """Caption, picture, account and chart of one episode at one moment; `scale` is limit, top cost
    and last time."""
    limit = scale[0]
    column = Image.new("RGB", (SIZE, CAPTION + SIZE + ACCOUNT + CHART), WHITE)
    pen = ImageDraw.Draw(column)
    colour = RED if is_breached(episode, now, limit) else INK
    pen.text((0, 2), caption(episode, limit), colour, font(17, bold=True))
    origin = f"seed {episode.seed}, episode {episode.number}, return {amount(float(episode.reward[now]))}"
    pen.text((0, 27), origin, GREY, font(13))
    column.paste(Image.fromarray(picture), (0, CAPTION))
    if colour == RED:
        pen.rectangle((0, CAPTION, SIZE - 1, CAPTION + SIZE - 1), None, RED, 4)
    line = CAPTION + SIZE + 12
    state = f"cost {amount(float(episode.spent[now]))}"
    pen.text((0, line), state, colour, font(16, bold=True))
    beside = pen.textlength(state + " ", font(16, bold=True))
    words = f"> limit {limit:g}" if colour == RED else f"of {limit:g} allowed"
    pen.text((beside, line), words, colour if colour == RED else GREY, font(16))
    over = "   ended" if now == episode.length else ""
    pen.text((SIZE, line + 2), f"step {now} of {episode.length}{over}", GREY, font(14), anchor="ra")
    column.paste(_chart(episode.spent[: now + 1], scale), (0, CAPTION + SIZE + ACCOUNT))
    return column


def _chart(spent: Float[np.ndarray, "time"], scale: tuple[float, float, int]) -> Image.Image:
    """The cost spent so far as a staircase over time, with the limit as a dashed line."""
    limit, top, span = scale
    colour = RED if spent[-1] > limit else BLUE
    image, pen = canvas(SIZE, CHART)
    unit, right = OVERSAMPLING, SIZE - 76
    low = min(0.0, float(spent.min()))

    def place(time: float, cost: float) -> tuple[float, float]:
        return unit * right * time / span, unit * (CHART - 6) * (top - cost) / (top - low)

    floor, line = place(0, low)[1], place(0, limit)[1]
    pen.rectangle((0, 0, unit * right, floor), blend(PALE, WHITE, 0.45))
    stairs = [place(0, float(spent[0]))]
    for time in np.flatnonzero(np.diff(spent)) + 1:
        stairs += [
            place(float(time), float(spent[time - 1])),
            place(float(time), float(spent[time])),
        ]
    stairs.append(place(len(spent) - 1, float(spent[-1])))
    pen.polygon(
        [(stairs[0][0], floor), *stairs, (stairs[-1][0], floor)], blend(colour, WHITE, 0.25)
    )
    pen.line(stairs, colour, 2 * unit)
    for x in range(0, unit * right, 10 * unit):
        pen.line([(x, line), (min(x + 6 * unit, unit * right), line)], INK, round(1.4 * unit))
    pen.line([(0, floor), (unit * right, floor)], GREY, unit)
    x, y = stairs[-1]
    pen.ellipse((x - 4 * unit, y - 4 * unit, x + 4 * unit, y + 4 * unit), colour)
    label = f"limit {limit:g}"
    pen.text((unit * (right + 8), line), label, INK, font(12 * unit), anchor="lm")
    return reduced(image)
