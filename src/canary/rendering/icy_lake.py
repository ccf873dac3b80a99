"""IcyLake from above: snow, ice, the goal and the path so far; steps that cost are amber."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyBboxPatch, Polygon

from canary.environments.icy_lake import IcyLake
from canary.rendering.panel import (
    AMBER,
    BLUE,
    CANARY,
    GREEN,
    GREY,
    INK,
    Picture,
    RecordedEpisode,
    pixels,
    square,
)

COLOURS, SHORE, CRACK = {"H": "#a9d3ee", "G": "#d2e8da"}, "#d5dee6", "#6faedb"
SNOW = "#f3f7fa"
GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))
# In tiles, y downwards
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
    """Draw the lake, and the path up to each moment."""
    rows = environment.rows
    columns, half = len(rows[0]), max(len(rows), len(rows[0])) / 2
    axes, tile = square(size, np.array([columns, len(rows)]) / 2, half, SHORE), size / (2 * half)
    axes.invert_yaxis()
    _draw_lake(axes, rows, tile)
    places = walk(np.asarray(episode.states.inner), columns)
    is_costly = np.asarray(episode.states.cost) > 0
    (path,) = axes.plot([], [], color=BLUE, linewidth=tile * 0.022)
    (dots,) = axes.plot([], [], "o", color=BLUE, markersize=tile * 0.044, markeredgewidth=0)
    (costs,) = axes.plot([], [], "o", color=AMBER, markersize=tile * 0.09, markeredgewidth=0)
    body = Circle((0, 0), 0.15, edgecolor=INK, linewidth=tile * 0.022, zorder=3)
    eye, beak = (
        Circle((0, 0), 0.02, color=INK, zorder=4),
        Polygon([(0, 0)], edgecolor=INK, zorder=4),
    )
    for patch in (body, eye, beak):
        axes.add_patch(patch)
    for now in moments:
        past, paid = places[: now + 1], is_costly[: now + 1]
        for line, some in ((path, past), (dots, past[~paid]), (costs, past[paid])):
            line.set_data(*some.T)
        body.set(center=past[-1], facecolor=AMBER if paid[-1] else CANARY)
        eye.set(center=past[-1] + [0.055, -0.035])
        beak.set(xy=past[-1] + np.array(BEAK), facecolor="white" if paid[-1] else AMBER)
        yield pixels(axes.figure)


def walk(positions: np.ndarray, columns: int) -> Float[np.ndarray, "time 2"]:
    """The position (x, y in tiles) of each step; repeated visits of a tile form a spiral in it."""
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


def _draw_lake(axes: Axes, rows: list[str], tile: float) -> None:
    for (row, column), letter in np.ndenumerate(np.array([list(row) for row in rows])):
        corner = np.array([column, row])
        colour, rounded = COLOURS.get(letter, SNOW), "round,pad=0,rounding_size=0.08"
        box = FancyBboxPatch(
            tuple(corner + 0.025), 0.95, 0.95, rounded, facecolor=colour, linewidth=0
        )
        axes.add_patch(box)
        if letter == "H":
            for line in CRACKS:
                axes.plot(*(corner + line).T, color=CRACK, linewidth=tile * 0.016)
        elif letter == "G":
            axes.plot(*(corner + POLE).T, color=INK, linewidth=tile * 0.035)
            axes.add_patch(Polygon(corner + FLAG, color=GREEN))
        elif letter == "S":
            axes.text(column + 0.1, row + 0.2, "start", color=GREY, size=tile * 0.14)
