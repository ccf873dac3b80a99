"""PointGoal from above, in true sizes: hazards, goal, vase and path; steps that cost are amber."""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from canary.environments.point_arena import ARENA
from canary.environments.point_goal import GOAL_RADIUS, HAZARD_RADIUS, PointGoal
from canary.rendering.canvas import AMBER, BLUE, CANARY, GREEN, INK, WHITE, Canvas, Picture, blend
from canary.rendering.panel import RecordedEpisode

ROBOT_RADIUS, VASE_SIDE, MARGIN = 0.1, 0.2, 0.2  # metres
FLOOR, OUTSIDE, GRID = "#f6f7f8", "#e9ecee", "#e3e7ea"
TRAIL = 150  # steps after which the path has faded


def draw(
    environment: PointGoal, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """One view for the whole episode: the arena, and wherever else the robot goes."""
    scene = episode.states.inner
    centre, half = view(np.asarray(scene.robot.position))
    scale = size / (2 * half)

    def place(points: Float[np.ndarray, "*point 2"]) -> Float[np.ndarray, "*point 2"]:
        """Pixels of points in metres; y points up in the arena and down in a picture."""
        return (np.asarray(points) - centre) * scale * np.array([1, -1]) + size / 2

    floor = Canvas(size, size, OUTSIDE)
    (left, bottom), (right, top) = place(np.array([[-ARENA, -ARENA], [ARENA, ARENA]]))
    floor.box((left, top), (right, bottom), FLOOR, radius=scale * 0.06)
    for x, y in place(np.repeat(np.arange(-ARENA + 0.5, ARENA, 0.5)[:, None], 2, axis=1)):
        floor.line([(x, top), (x, bottom)], GRID)
        floor.line([(left, y), (right, y)], GRID)
    path, cost = place(scene.robot.position), np.asarray(episode.states.cost)
    for now in moments:
        canvas = floor.copy()
        for hazard in place(scene.hazards[now]):
            canvas.disc(hazard, scale * HAZARD_RADIUS, blend(AMBER, FLOOR, 0.35))
            canvas.disc(hazard, scale * HAZARD_RADIUS * 0.94, blend(AMBER, FLOOR, 0.22))
        if environment.vase != "none":
            vase, half_side = place(scene.vase[now]), scale * VASE_SIDE / 2
            low, high = vase - half_side, vase + half_side
            canvas.box(low, high, "#7fb8b5", radius=half_side / 4, edge="#4f8f8c", width=1.3)
        goal = place(scene.goal[now])
        canvas.disc(goal, scale * GOAL_RADIUS, blend(GREEN, FLOOR, 0.75))
        canvas.disc(goal, scale * GOAL_RADIUS * 0.92, blend(GREEN, FLOOR, 0.35))
        _draw_path(canvas, path[: now + 1], cost, scale)
        heading, colour = float(scene.robot.heading[now]), AMBER if cost[now] > 0 else CANARY
        _draw_robot(canvas, path[now], heading, scale * ROBOT_RADIUS, colour)
        yield canvas.picture


def view(positions: Float[np.ndarray, "time 2"]) -> tuple[Float[np.ndarray, "2"], float]:
    """Centre and half the side of the smallest square that shows the arena and every position."""
    low = np.minimum(positions.min(0), -ARENA) - MARGIN
    high = np.maximum(positions.max(0), ARENA) + MARGIN
    return (low + high) / 2, float((high - low).max()) / 2


def _draw_path(canvas: Canvas, path: np.ndarray, cost: np.ndarray, scale: float) -> None:
    """Older steps are paler; steps that cost are amber at any age."""
    now, width = len(path) - 1, max(1, scale * 0.018)
    for time in range(now):
        if cost[time + 1] > 0:
            canvas.line(path[time : time + 2], AMBER, 1.8 * width)
        else:
            weight = max(0.28, 1 - (now - time) / TRAIL)
            canvas.line(path[time : time + 2], blend(BLUE, FLOOR, weight), width)


def _draw_robot(
    canvas: Canvas, centre: np.ndarray, heading: float, radius: float, colour: str
) -> None:
    ahead = radius * np.array([np.cos(heading), -np.sin(heading)])
    side = np.array([ahead[1], -ahead[0]])
    front = [centre + a * ahead + b * side for a, b in ((1.55, 0), (0.75, 0.62), (0.75, -0.62))]
    canvas.polygon(front, INK)
    canvas.disc(centre, radius, colour, edge=INK)
    canvas.disc(centre + 0.45 * ahead, radius * 0.2, WHITE)
    canvas.disc(centre + 0.45 * ahead, radius * 0.14, INK)
