"""EcoAnt by MuJoCo's own renderer, without a window. The camera follows the torso, whose path lies
on the floor.

`mujoco.Renderer` uses the OpenGL that MUJOCO_GL named when mujoco was first imported, by default
one that needs a screen. The physics imports mujoco first, so the context is made here.
"""

import ctypes.util
import importlib
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from jaxtyping import Float

from canary.environments.eco_ant import EcoAnt
from canary.environments.physics import require
from canary.errors import CanaryError
from canary.rendering.panel import RecordedEpisode
from canary.rendering.picture import Picture

DISTANCE, LOOK_AT_HEIGHT, AZIMUTH, ELEVATION = 4.0, 0.35, 115.0, -24.0
SMOOTHING = 12  # steps before and after over which the camera averages the ant's position
PATH_COLOUR = np.array([0.18, 0.43, 0.71, 1.0], np.float32)
MOST_GEOMS = 2000


def draw(
    environment: EcoAnt, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """A picture per moment; the graphics are released after the last one."""
    mujoco = require("mujoco")
    model = environment.model
    data, scene = mujoco.MjData(model), mujoco.MjvScene(model, MOST_GEOMS)
    scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
    camera, option = mujoco.MjvCamera(), mujoco.MjvOption()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.distance, camera.azimuth, camera.elevation = DISTANCE, AZIMUTH, ELEVATION
    position = np.asarray(episode.states.inner.physics.qpos)
    centre, times = _smoothed(position[:, :2]), np.asarray(moments)
    rectangle, pixels = mujoco.MjrRect(0, 0, size, size), np.empty((size, size, 3), np.uint8)
    with ExitStack() as stack:
        graphics = open_graphics(size)
        stack.callback(graphics.free)
        graphics.make_current()
        target = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        stack.callback(target.free)
        stack.callback(graphics.make_current)  # callbacks run from last to first
        mujoco.mjr_resizeOffscreen(size, size, target)
        for now in moments:
            graphics.make_current()  # another episode may be drawn between two frames
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, target)
            data.qpos[:] = position[now]
            mujoco.mj_kinematics(model, data)
            mujoco.mj_camlight(model, data)
            camera.lookat[:] = *centre[now], LOOK_AT_HEIGHT
            kinds = mujoco.mjtCatBit.mjCAT_ALL
            mujoco.mjv_updateScene(model, data, option, None, camera, kinds, scene)
            _lay_path(mujoco, scene, position[times[times <= now], :2])
            mujoco.mjr_render(rectangle, scene, target)
            mujoco.mjr_readPixels(pixels, None, rectangle, target)
            yield pixels[::-1].copy()


def _smoothed(path: Float[np.ndarray, "time 2"]) -> Float[np.ndarray, "time 2"]:
    """Moving averages, so that the camera glides."""
    padded = np.pad(path, ((SMOOTHING, SMOOTHING), (0, 0)), "edge")
    return np.lib.stride_tricks.sliding_window_view(padded, 2 * SMOOTHING + 1, 0).mean(-1)


def _lay_path(mujoco: Any, scene: Any, path: Float[np.ndarray, "time 2"]) -> None:
    """Thin links between the places of the torso, on the floor."""
    for start, end in itertools.pairwise(path):
        if scene.ngeom >= scene.maxgeom:
            return
        geom, kind = scene.geoms[scene.ngeom], mujoco.mjtGeom.mjGEOM_CAPSULE
        mujoco.mjv_initGeom(geom, kind, np.zeros(3), np.zeros(3), np.zeros(9), PATH_COLOUR)
        mujoco.mjv_connector(geom, kind, 0.025, np.append(start, 0.0), np.append(end, 0.0))
        scene.ngeom += 1


def check_graphics(environment: EcoAnt) -> None:
    """Raise a sentence if it cannot be drawn here, before any episode is played."""
    del environment
    open_graphics(16).free()


def open_graphics(size: int) -> Any:
    """An OpenGL context without a window; has make_current() and free()."""
    kind = graphics_kind()
    try:
        require("mujoco")
        return importlib.import_module(f"mujoco.{kind}").GLContext(size, size)
    except Exception as error:  # PyOpenGL raises AttributeError, ImportError, its own, ... alike
        reason = str(error).partition("\n")[0][:120] or type(error).__name__
        raise CanaryError(
            f"The ant cannot be drawn because OpenGL does not work ({kind}: {reason}); on Debian or "
            "Ubuntu run `apt install libegl1 libgl1-mesa-dri`, or `apt install libosmesa6` and set "
            "MUJOCO_GL=osmesa."
        ) from None


def graphics_kind() -> str:
    """egl, osmesa, glfw or cgl: what MUJOCO_GL says, or what works here without a screen."""
    asked = os.environ.get("MUJOCO_GL", "").lower().strip()
    if asked in ("egl", "osmesa", "glfw", "cgl"):
        return asked
    if sys.platform != "linux":
        return "cgl" if sys.platform == "darwin" else "glfw"
    found = [library for library in ("EGL", "OSMesa") if ctypes.util.find_library(library)]
    found += ["glfw"] if os.environ.get("DISPLAY") else []
    return found[0].lower() if found else "no library"
