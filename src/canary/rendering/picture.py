"""Pictures by matplotlib, at 72 dots per inch: lines and letters in points are in pixels."""

from typing import Any

import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Blue, red, grey and green are those of the report's figures. Red always means: above the limit.
INK, GREY, PALE, WHITE = "#26323d", "#8a8a8a", "#f2f3f5", "#ffffff"
BLUE, RED, GREEN = "#2f6db5", "#c8443c", "#3a9a5b"
AMBER, CANARY = "#e8962e", "#fbd24b"

Picture = UInt8[np.ndarray, "height width 3"]


def blank(width: int, height: int, colour: str = WHITE) -> Figure:
    figure = Figure((width / 72, height / 72), dpi=72, facecolor=colour)
    FigureCanvasAgg(figure)
    return figure


def square(size: int, centre: np.ndarray, half: float, colour: str) -> Axes:
    """A square picture of the places at most `half` away from the centre, y upwards."""
    axes = blank(size, size, colour).add_axes((0, 0, 1, 1))
    axes.set(xlim=(centre[0] - half, centre[0] + half), ylim=(centre[1] - half, centre[1] + half))
    axes.set_axis_off()
    return axes


def pixels(figure: Any) -> Picture:
    """The figure as it is now."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()
