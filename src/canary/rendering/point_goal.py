"""PointGoal from above, to scale: hazards, goal, vase and path; steps that cost are amber."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Circle, FancyBboxPatch, Polygon

from canary.environments.point_goal import ARENA, GOAL_RADIUS, HAZARD_RADIUS, PointGoal
from canary.rendering.panel import (
    AMBER,
    BLUE,
    CANARY,
    GREEN,
    INK,
    WHITE,
    Picture,
    RecordedEpisode,
    pixels,
    square,
)

ROBOT_RADIUS, VASE_SIDE, MARGIN = 0.1, 0.2, 0.2  # metres
FLOOR, OUTSIDE, GRID = "#f6f7f8", "#e9ecee", "#e3e7ea"
TRAIL = 150  # steps over which the path fades
FRONT = np.array([(1.55, 0), (0.75, 0.62), (0.75, -0.62)])  # the robot's front, in its radii


def draw(
    environment: PointGoal, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """Draw the arena and all places of the robot, in one view for the whole episode."""
    scene, is_costly = episode.states.inner, np.asarray(episode.states.cost) > 0
    path = np.asarray(scene.robot.position)
    centre, half = view(path)
    axes, metre = square(size, centre, half, OUTSIDE), size / (2 * half)
    _draw_arena(axes, np.asarray(scene.hazards[0]))
    if environment.vase != "none":
        corner = np.asarray(scene.vase[0]) - VASE_SIDE / 2
        _box(axes, corner, VASE_SIDE, 0.025, facecolor="#7fb8b5", edgecolor="#4f8f8c", zorder=2)
    goal = axes.add_patch(Circle((0, 0), GOAL_RADIUS, **_disc(GREEN, 0.35)))
    trail = axes.add_collection(LineCollection([], zorder=3))
    front = axes.add_patch(Polygon(FRONT, color=INK, zorder=4))
    body = axes.add_patch(Circle((0, 0), ROBOT_RADIUS, edgecolor=INK, linewidth=1.5, zorder=5))
    eye = axes.add_patch(Circle((0, 0), 0.015, facecolor=INK, edgecolor=WHITE, zorder=6))
    steps = np.stack([path[:-1], path[1:]], axis=1)
    for now in moments:
        goal.set(center=scene.goal[now])
        paid, age = is_costly[1 : now + 1], now - np.arange(now)
        colours = np.where(paid[:, None], to_rgba(AMBER), to_rgba(BLUE))
        colours[~paid, 3] = np.maximum(0.28, 1 - age[~paid] / TRAIL)
        width = max(1, metre * 0.018)
        trail.set(segments=steps[:now], color=colours, linewidth=np.where(paid, 1.8, 1) * width)
        angle = float(scene.robot.heading[now])
        ahead = ROBOT_RADIUS * np.array([np.cos(angle), np.sin(angle)])
        front.set(xy=path[now] + FRONT @ np.stack([ahead, [-ahead[1], ahead[0]]]))
        body.set(center=path[now], facecolor=AMBER if is_costly[now] else CANARY)
        eye.set(center=path[now] + 0.45 * ahead)
        yield pixels(axes.figure)


def view(positions: Float[np.ndarray, "time 2"]) -> tuple[Float[np.ndarray, "2"], float]:
    """Centre and half-side of the smallest square that shows the arena and every position."""
    low = np.minimum(positions.min(0), -ARENA) - MARGIN
    high = np.maximum(positions.max(0), ARENA) + MARGIN
    return (low + high) / 2, float((high - low).max()) / 2


def _draw_arena(axes: Axes, hazards: Float[np.ndarray, "hazard 2"]) -> None:
    _box(axes, np.full(2, -ARENA), 2 * ARENA, 0.06, facecolor=FLOOR, linewidth=0)
    for at in np.arange(-ARENA + 0.5, ARENA, 0.5):
        axes.plot([at, at], [-ARENA, ARENA], color=GRID, linewidth=1)
        axes.plot([-ARENA, ARENA], [at, at], color=GRID, linewidth=1)
    for hazard in hazards:
        axes.add_patch(Circle(hazard, HAZARD_RADIUS, **_disc(AMBER, 0.22)))


def _box(axes: Axes, corner: np.ndarray, side: float, radius: float, **style: Any) -> None:
    shape = f"round,pad=0,rounding_size={radius}"
    axes.add_patch(FancyBboxPatch(tuple(corner), side, side, shape, **style))


def _disc(colour: str, weight: float) -> dict[str, Any]:
    """A translucent disc with a stronger edge."""
    return {"facecolor": (colour, weight), "edgecolor": (colour, 2 * weight), "zorder": 2}
