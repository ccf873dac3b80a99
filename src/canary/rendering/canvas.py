"""Colours, letters and anti-aliased shapes: drawn three times too large by Pillow, then
averaged."""

from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from canary.rendering.episode import Picture

OVERSAMPLING = 3

# Blue, red, grey and green are those of the report's figures. Red says that the limit is exceeded
# and nothing else.
INK, GREY, PALE, WHITE = "#26323d", "#8a8a8a", "#e4e7ea", "#ffffff"
BLUE, RED, GREEN = "#2f6db5", "#c8443c", "#3a9a5b"
AMBER, CANARY = "#e8962e", "#fbd24b"


def canvas(width: int, height: int, colour: str = WHITE) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A picture to be drawn on in units of 1 / OVERSAMPLING pixels."""
    image = Image.new("RGB", (OVERSAMPLING * width, OVERSAMPLING * height), colour)
    return image, ImageDraw.Draw(image)


def reduced(image: Image.Image) -> Image.Image:
    return image.reduce(OVERSAMPLING)


def pixels(image: Image.Image) -> Picture:
    return np.asarray(reduced(image))


@cache
def font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which matplotlib brings along: the same letters on every machine."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)


def blend(colour: str, ground: str, weight: float) -> str:
    """`weight` parts of the colour on 1 - weight parts of the ground."""
    parts = [
        round(weight * int(colour[i : i + 2], 16) + (1 - weight) * int(ground[i : i + 2], 16))
        for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in parts)


def disc(
    draw: ImageDraw.ImageDraw,
    centre: tuple[float, float],
    radius: float,
    fill: str,
    *,
    edge: str | None = None,
) -> None:
    (x, y), width = centre, max(1, round(radius / 7))
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill, edge, width if edge else 0)
