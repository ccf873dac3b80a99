"""A canvas with anti-aliased shapes: Pillow draws them three times too large, then averages."""

import copy
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Self

import matplotlib
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

# Blue, red, grey and green are those of the report's figures. Red always means: above the limit.
INK, GREY, PALE, WHITE = "#26323d", "#8a8a8a", "#e4e7ea", "#ffffff"
BLUE, RED, GREEN = "#2f6db5", "#c8443c", "#3a9a5b"
AMBER, CANARY = "#e8962e", "#fbd24b"

Picture = UInt8[np.ndarray, "height width 3"]
Point = Sequence[float] | np.ndarray
"""x and y."""


class Canvas:
    """All places and sizes are in pixels of the finished picture."""

    def __init__(self, width: int, height: int, colour: str = WHITE, *, oversampling: int = 3):
        self._unit = oversampling
        self._image = Image.new("RGB", (self._unit * width, self._unit * height), colour)

    def copy(self) -> Self:
        other = copy.copy(self)
        other._image = self._image.copy()
        return other

    @property
    def picture(self) -> Picture:
        return np.asarray(self._image.reduce(self._unit) if self._unit > 1 else self._image)

    @property
    def _pen(self) -> ImageDraw.ImageDraw:
        return ImageDraw.Draw(self._image)

    def _scaled(self, points: Iterable[Point]) -> list[tuple[float, float]]:
        return [(self._unit * float(x), self._unit * float(y)) for x, y in points]

    def _width(self, width: float) -> int:
        return max(1, round(self._unit * width))

    def line(self, points: Iterable[Point], colour: str, width: float = 1.0) -> None:
        self._pen.line(self._scaled(points), colour, self._width(width), joint="curve")

    def polygon(self, points: Iterable[Point], fill: str, edge: str | None = None) -> None:
        self._pen.polygon(self._scaled(points), fill, edge)

    def box(
        self,
        low: Point,
        high: Point,
        fill: str | None,
        *,
        radius: float = 0.0,
        edge: str | None = None,
        width: float = 1.0,
    ) -> None:
        corners = [number for point in self._scaled([low, high]) for number in point]
        shown = self._width(width) if edge else 0
        self._pen.rounded_rectangle(corners, self._unit * radius, fill, edge, shown)

    def disc(self, centre: Point, radius: float, fill: str, edge: str | None = None) -> None:
        (x, y), size = self._scaled([centre])[0], self._unit * radius
        width = max(1, round(size / 7)) if edge else 0
        self._pen.ellipse((x - size, y - size, x + size, y + size), fill, edge, width)

    def text(
        self,
        place: Point,
        text: str,
        colour: str,
        size: float,
        *,
        bold: bool = False,
        anchor: str = "la",
    ) -> float:
        """Write the text and return its width."""
        letters = _font(round(self._unit * size), bold)
        self._pen.text(self._scaled([place])[0], text, colour, letters, anchor=anchor)
        return self._pen.textlength(text, letters) / self._unit

    def paste(self, picture: Picture, place: tuple[int, int]) -> None:
        """Only without oversampling."""
        self._image.paste(Image.fromarray(picture), place)


@cache
def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which matplotlib ships: the same letters on every machine."""
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)


def blend(colour: str, ground: str, weight: float) -> str:
    """`weight` parts of the colour on 1 - weight parts of the ground."""
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(ground[1:]), strict=True)
    return f"#{bytes(round(weight * a + (1 - weight) * b) for a, b in pairs).hex()}"
