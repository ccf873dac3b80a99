"""EcoAnt in perspective: a camera follows the torso, whose path is drawn on the floor.

MuJoCo gives the positions of the parts of the body. They are drawn as thick lines, the farthest
first, so no graphics library is needed.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from canary.environments.eco_ant import EcoAnt
from canary.environments.physics import require
from canary.rendering.panel import BLUE, INK, Picture, RecordedEpisode, pixels, square

DISTANCE, HEIGHT, AZIMUTH, ELEVATION = 4.0, 0.35, np.radians(115), np.radians(-24)
HALF_VIEW = np.tan(np.radians(22.5))  # half the side of the picture at distance 1
NEAREST = 0.5  # metres; nearer parts are not drawn
SMOOTHING = 12  # steps before and after over which the camera averages the ant's position
TILE, REACH = 2, 12  # metres: side of a floor square, and extent of the floor in each direction
OUTLINE, SHORTEST = 0.015, (1e-3, 0, 0)  # metres
FLOOR, GRID, SHADOW = "#eceff1", "#d9dee2", "#c6ccd1"

Lines = Float[np.ndarray, "line 2 3"]


def draw(
    environment: EcoAnt, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """Draw floor, path, shadows and body at each moment."""
    mujoco, model = require("mujoco"), environment.model
    data, kind = mujoco.MjData(model), model.geom_type
    parts = np.flatnonzero(kind != mujoco.mjtGeom.mjGEOM_PLANE)
    is_capsule = kind[parts] == mujoco.mjtGeom.mjGEOM_CAPSULE
    radius, colour = model.geom_size[parts, 0], model.mat_rgba[model.geom_matid[parts]]
    position = np.asarray(episode.states.inner.physics.qpos)
    path = np.pad(position[:, :2], ((0, 0), (0, 1)))
    centre, times = smoothed(path), np.asarray(moments)
    axes, layers = square(size, np.zeros(2), 1.0, FLOOR), range(4)
    grid, trail, shadows, body = (
        axes.add_collection(LineCollection([], capstyle="round", zorder=at, snap=False))
        for at in layers
    )
    for now in moments:
        data.qpos[:] = position[now]
        mujoco.mj_kinematics(model, data)
        axis = model.geom_size[parts, 1:2] * data.geom_xmat.reshape(-1, 3, 3)[parts, :, 2]
        axis[~is_capsule] = SHORTEST  # a ball is a very short line
        limbs = data.geom_xpos[parts, None] + np.stack([-axis, axis], 1)
        past = path[times[times <= now]]
        grid.set(segments=seen(tiles(centre[now]), centre[now])[0], color=GRID, linewidth=1)
        steps = np.stack([past[:-1], past[1:]], 1)
        trail.set(segments=seen(steps, centre[now])[0], color=BLUE, linewidth=3)
        flat, depth = seen(limbs * [1, 1, 0], centre[now])
        shadows.set(segments=flat, color=SHADOW, linewidth=size * radius / (HALF_VIEW * depth))
        flat, depth = seen(limbs, centre[now])
        order = np.repeat(np.argsort(-depth), 2)  # each part twice: its outline, then its colour
        is_rim = np.arange(len(order)) % 2 == 0
        thickness = (radius[order] + OUTLINE * is_rim) / (HALF_VIEW * depth[order])
        fill = np.where(is_rim[:, None], to_rgba(INK), colour[order])
        body.set(segments=flat[order], color=fill, linewidth=size * thickness)
        yield pixels(axes.figure)


def seen(
    lines: Lines, centre: Float[np.ndarray, "3"]
) -> tuple[Float[np.ndarray, "line 2 2"], Float[np.ndarray, "line"]]:
    """Lines in the picture, with sides at -1 and 1, and their distances from the camera."""
    level = np.array([np.cos(AZIMUTH), np.sin(AZIMUTH), 0.0])
    forward = np.cos(ELEVATION) * level + np.array([0, 0, np.sin(ELEVATION)])
    right = np.cross(forward, [0, 0, 1]) / np.cos(ELEVATION)
    eye = centre + np.array([0, 0, HEIGHT]) - DISTANCE * forward
    offset = lines - eye
    depth = offset @ forward
    places = np.stack([offset @ right, offset @ np.cross(right, forward)], -1)
    near = depth.min(-1) < NEAREST
    places = np.where(near[:, None, None], np.nan, places) / (HALF_VIEW * depth[..., None])
    return places, depth.mean(-1)


def tiles(centre: Float[np.ndarray, "3"]) -> Lines:
    """The sides of the floor squares around a place."""
    x, y = np.mgrid[-REACH:REACH:TILE, -REACH:REACH:TILE]
    corners = np.stack([x, y, 0 * x], -1).reshape(-1, 1, 3) + TILE * np.round(centre / TILE)
    sides = TILE * np.eye(3)[:2]
    return np.concatenate([np.concatenate([corners, corners + side], 1) for side in sides])


def smoothed(path: Float[np.ndarray, "time 3"]) -> Float[np.ndarray, "time 3"]:
    """Moving averages of a path, for a smooth camera."""
    padded = np.pad(path, ((SMOOTHING, SMOOTHING), (0, 0)), "edge")
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * SMOOTHING + 1, 0).mean(-1)
