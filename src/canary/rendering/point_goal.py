"""PointGoal from above: hazards, goal and vase in their true sizes, the path so far and, in amber,
the steps that cost."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float
from PIL import ImageDraw

from canary.environments.point_arena import ARENA
from canary.environments.point_goal import GOAL_RADIUS, HAZARD_RADIUS, PointGoal
from canary.rendering.canvas import (
    AMBER,
    BLUE,
    CANARY,
    GREEN,
    INK,
    OVERSAMPLING,
    WHITE,
    blend,
    canvas,
    disc,
    pixels,
)
from canary.rendering.episode import Picture, RecordedEpisode

# Metres; the last is kept free around all that is seen
ROBOT_RADIUS, VASE_SIDE, EDGE = (
    0.1,
    0.2,
    0.2,
)
FLOOR, OUTSIDE, GRID = "#f6f7f8", "#e9ecee", "#e3e7ea"
TRAIL = 150  # steps after which the path has faded


def draw(
    environment: PointGoal, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """One view for the whole episode: the arena, and wherever else the robot gets to."""
    scene = episode.states.inner
    centre, half = view(np.asarray(scene.robot.position))
    scale = OVERSAMPLING * size / (2 * half)

    def place(point: Float[np.ndarray, "2"]) -> tuple[float, float]:
        x, y = (np.asarray(point) - centre) * scale
        return float(x) + OVERSAMPLING * size / 2, OVERSAMPLING * size / 2 - float(y)

    path = [place(point) for point in scene.robot.position]
    cost = np.asarray(episode.states.cost)
    for now in moments:
        image, pen = canvas(size, size, OUTSIDE)
        _draw_floor(pen, place, scale)
        for hazard in scene.hazards[now]:
            disc(pen, place(hazard), scale * HAZARD_RADIUS, blend(AMBER, FLOOR, 0.35))
            disc(pen, place(hazard), scale * HAZARD_RADIUS * 0.94, blend(AMBER, FLOOR, 0.22))
        if environment.vase != "none":
            x, y = place(scene.vase[now])
            side = scale * VASE_SIDE / 2
            pen.rounded_rectangle(
                (x - side, y - side, x + side, y + side), side / 4, "#7fb8b5", "#4f8f8c", 4
            )
        disc(pen, place(scene.goal[now]), scale * GOAL_RADIUS, blend(GREEN, FLOOR, 0.75))
        disc(pen, place(scene.goal[now]), scale * GOAL_RADIUS * 0.92, blend(GREEN, FLOOR, 0.35))
        _draw_path(pen, path[: now + 1], cost[: now + 1], scale)
        _draw_robot(
            pen,
            path[now],
            float(scene.robot.heading[now]),
            scale,
            AMBER if cost[now] > 0 else CANARY,
        )
        yield pixels(image)


def view(positions: Float[np.ndarray, "time 2"]) -> tuple[Float[np.ndarray, "2"], float]:
    """Centre and half the side of the smallest square that shows the arena and every position."""
    low = np.minimum(positions.min(0), -ARENA) - EDGE
    high = np.maximum(positions.max(0), ARENA) + EDGE
    return (low + high) / 2, float((high - low).max()) / 2


def _draw_floor(pen: ImageDraw.ImageDraw, place, scale: float) -> None:
    (left, bottom), (right, top) = place(np.full(2, -ARENA)), place(np.full(2, ARENA))
    pen.rounded_rectangle((left, top, right, bottom), scale * 0.06, FLOOR)
    for line in np.arange(-ARENA + 0.5, ARENA, 0.5):
        x, y = place(np.array([line, line]))
        pen.line([(x, top), (x, bottom)], GRID, OVERSAMPLING)
        pen.line([(left, y), (right, y)], GRID, OVERSAMPLING)


def _draw_path(pen: ImageDraw.ImageDraw, path: list, cost: np.ndarray, scale: float) -> None:
    """Recent steps are strong, older ones pale; where a step cost, amber at any age."""
    now, width = len(path) - 1, max(OVERSAMPLING, round(scale * 0.018))
    for time in range(now):
        weight = max(0.28, 1 - (now - time) / TRAIL)
        is_costly = cost[time + 1] > 0
        colour = AMBER if is_costly else blend(BLUE, FLOOR, weight)
        pen.line([path[time], path[time + 1]], colour, round(1.8 * width) if is_costly else width)


def _draw_robot(
    pen: ImageDraw.ImageDraw, centre: tuple[float, float], heading: float, scale: float, colour: str
) -> None:
    radius = scale * ROBOT_RADIUS
    ahead = np.array([np.cos(heading), -np.sin(heading)])
    side = np.array([ahead[1], -ahead[0]])
    front = [
        tuple(np.add(centre, radius * (a * ahead + b * side)))
        for a, b in ((1.55, 0.0), (0.75, 0.62), (0.75, -0.62))
    ]
    pen.polygon(front, INK)
    disc(pen, centre, radius, colour, edge=INK)
    eye = np.add(centre, radius * (0.45 * ahead + 0.0 * side))
    disc(pen, (float(eye[0]), float(eye[1])), radius * 0.2, WHITE)
    disc(pen, (float(eye[0]), float(eye[1])), radius * 0.14, INK)
