"""IcyLake from above: snow, ice, the goal, the walk so far and, in amber, the steps that cost."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw

from canary.environments.icy_lake import STANDARD_MAPS, IcyLake
from canary.rendering.canvas import (
    AMBER,
    BLUE,
    CANARY,
    GREEN,
    GREY,
    INK,
    OVERSAMPLING,
    WHITE,
    blend,
    canvas,
    disc,
    font,
    pixels,
)
from canary.rendering.episode import Picture, RecordedEpisode

SNOW, ICE, CRACK, SHORE = "#f3f7fa", "#a9d3ee", "#6faedb", "#d5dee6"
GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))


def draw(
    environment: IcyLake, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """The lake fills the picture; the walk is drawn up to each moment."""
    rows = STANDARD_MAPS.get(environment.map, environment.map).split("/")
    columns = len(rows[0])
    tile = OVERSAMPLING * size / max(len(rows), columns)
    corner = (OVERSAMPLING * size - tile * np.array([columns, len(rows)])) / 2
    places = corner + tile * walk(np.asarray(episode.states.inner), columns)
    cost = np.asarray(episode.states.cost)
    lake = _lake(rows, size, tile, corner)
    for now in moments:
        image = lake.copy()
        _draw_walk(ImageDraw.Draw(image), places[: now + 1], cost[: now + 1], tile)
        yield pixels(image)


def walk(positions: np.ndarray, columns: int) -> Float[np.ndarray, "time 2"]:
    """Where in the lake (x, y in tiles) each step is drawn.

    Visits of a tile are laid out in a spiral around its centre, so that walking to and fro and
    bumping into the border can be seen.
    """
    visits: Counter[int] = Counter()
    most = max(Counter(positions.tolist()).values())
    places = np.empty((len(positions), 2))
    for time, position in enumerate(positions.tolist()):
        visit = visits[position]
        visits[position] += 1
        radius = min(0.09 * np.sqrt(visit), 0.3 * np.sqrt(visit / most))
        angle = visit * GOLDEN_ANGLE
        row, column = divmod(position, columns)
        places[time] = column + 0.5 + radius * np.cos(angle), row + 0.5 + radius * np.sin(angle)
    return places


def _lake(rows: list[str], size: int, tile: float, corner: np.ndarray) -> Image.Image:
    image, pen = canvas(size, size, SHORE)
    gap = tile * 0.025
    for (row, column), letter in np.ndenumerate(np.array([list(row) for row in rows])):
        x, y = corner + tile * np.array([column, row])
        box = (x + gap, y + gap, x + tile - gap, y + tile - gap)
        pen.rounded_rectangle(box, tile * 0.08, ICE if letter == "H" else SNOW)
        if letter == "H":
            _crack(pen, x, y, tile)
        elif letter == "G":
            _flag(pen, x, y, tile)
        elif letter == "S":
            name = font(round(tile * 0.14))
            pen.text((x + tile * 0.1, y + tile * 0.07), "start", blend(GREY, SNOW, 0.8), name)
    return image


def _crack(pen: ImageDraw.ImageDraw, x: float, y: float, tile: float) -> None:
    for line in (
        ((0.12, 0.3), (0.32, 0.36), (0.45, 0.2), (0.62, 0.3), (0.88, 0.16)),
        ((0.32, 0.36), (0.38, 0.58), (0.24, 0.84)),
        ((0.38, 0.58), (0.64, 0.66), (0.86, 0.6)),
        ((0.64, 0.66), (0.7, 0.88)),
    ):
        pen.line(
            [(x + tile * a, y + tile * b) for a, b in line],
            CRACK,
            round(tile * 0.016),
            joint="curve",
        )


def _flag(pen: ImageDraw.ImageDraw, x: float, y: float, tile: float) -> None:
    pen.rounded_rectangle(
        (x + tile * 0.025, y + tile * 0.025, x + tile * 0.975, y + tile * 0.975),
        tile * 0.08,
        blend(GREEN, SNOW, 0.18),
    )
    pen.line(
        [(x + tile * 0.3, y + tile * 0.18), (x + tile * 0.3, y + tile * 0.84)],
        INK,
        round(tile * 0.035),
    )
    corners = ((0.3, 0.18), (0.78, 0.34), (0.3, 0.5))
    pen.polygon([(x + tile * a, y + tile * b) for a, b in corners], GREEN)


def _draw_walk(pen: ImageDraw.ImageDraw, places: np.ndarray, cost: np.ndarray, tile: float) -> None:
    points = [tuple(place) for place in places.tolist()]
    if len(points) > 1:
        pen.line(points, BLUE, round(tile * 0.022), joint="curve")
    for point, price in zip(points, cost, strict=True):
        disc(pen, point, tile * (0.045 if price > 0 else 0.022), AMBER if price > 0 else BLUE)
    disc(pen, points[-1], tile * 0.15, AMBER if cost[-1] > 0 else CANARY, edge=INK)
    x, y = points[-1]
    disc(pen, (x + tile * 0.055, y - tile * 0.035), tile * 0.02, INK)
    beak = ((0.115, -0.03), (0.215, 0.015), (0.115, 0.05))
    pen.polygon(
        [(x + tile * a, y + tile * b) for a, b in beak], AMBER if cost[-1] <= 0 else WHITE, INK
    )
