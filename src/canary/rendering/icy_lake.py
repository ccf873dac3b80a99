"""IcyLake from above: snow, ice, the goal and the path so far; steps that cost are amber."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from canary.environments.icy_lake import STANDARD_MAPS, IcyLake
from canary.rendering.canvas import (
    AMBER,
    BLUE,
    CANARY,
    GREEN,
    GREY,
    INK,
    WHITE,
    Canvas,
    Picture,
    blend,
)
from canary.rendering.panel import RecordedEpisode

SNOW, ICE, CRACK, SHORE = "#f3f7fa", "#a9d3ee", "#6faedb", "#d5dee6"
GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))
# In parts of a tile
CRACKS = (
    ((0.12, 0.3), (0.32, 0.36), (0.45, 0.2), (0.62, 0.3), (0.88, 0.16)),
    ((0.32, 0.36), (0.38, 0.58), (0.24, 0.84)),
    ((0.38, 0.58), (0.64, 0.66), (0.86, 0.6)),
    ((0.64, 0.66), (0.7, 0.88)),
)
POLE, FLAG = ((0.3, 0.18), (0.3, 0.84)), ((0.3, 0.18), (0.78, 0.34), (0.3, 0.5))
BEAK = ((0.115, -0.03), (0.215, 0.015), (0.115, 0.05))


def draw(
    environment: IcyLake, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """The lake fills the picture; the path is drawn up to each moment."""
    rows = STANDARD_MAPS.get(environment.map, environment.map).split("/")
    columns = len(rows[0])
    tile = size / max(len(rows), columns)
    corner = (size - tile * np.array([columns, len(rows)])) / 2
    places = corner + tile * walk(np.asarray(episode.states.inner), columns)
    cost = np.asarray(episode.states.cost)
    lake = _lake(rows, size, tile, corner)
    for now in moments:
        canvas = lake.copy()
        _draw_walk(canvas, places[: now + 1], cost[: now + 1], tile)
        yield canvas.picture


def walk(positions: np.ndarray, columns: int) -> Float[np.ndarray, "time 2"]:
    """The place (x, y in tiles) of each step; visits of one tile lie on a spiral in it."""
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


def _lake(rows: list[str], size: int, tile: float, corner: np.ndarray) -> Canvas:
    canvas = Canvas(size, size, SHORE)
    colours = {"H": ICE, "G": blend(GREEN, SNOW, 0.18)}
    for (row, column), letter in np.ndenumerate(np.array([list(row) for row in rows])):
        low = corner + tile * np.array([column, row])
        gap = np.full(2, 0.025 * tile)
        fill = colours.get(letter, SNOW)
        canvas.box(low + gap, low + tile - gap, fill, radius=tile * 0.08)
        if letter == "H":
            for line in CRACKS:
                canvas.line(low + tile * np.array(line), CRACK, tile * 0.016)
        elif letter == "G":
            canvas.line(low + tile * np.array(POLE), INK, tile * 0.035)
            canvas.polygon(low + tile * np.array(FLAG), GREEN)
        elif letter == "S":
            place = low + tile * np.array([0.1, 0.07])
            canvas.text(place, "start", blend(GREY, SNOW, 0.8), tile * 0.14)
    return canvas


def _draw_walk(canvas: Canvas, places: np.ndarray, cost: np.ndarray, tile: float) -> None:
    if len(places) > 1:
        canvas.line(places, BLUE, tile * 0.022)
    for place, price in zip(places, cost, strict=True):
        canvas.disc(place, tile * (0.045 if price > 0 else 0.022), AMBER if price > 0 else BLUE)
    is_costly, now = cost[-1] > 0, places[-1]
    canvas.disc(now, tile * 0.15, AMBER if is_costly else CANARY, edge=INK)
    canvas.disc(now + tile * np.array([0.055, -0.035]), tile * 0.02, INK)
    canvas.polygon(now + tile * np.array(BEAK), WHITE if is_costly else AMBER, INK)
