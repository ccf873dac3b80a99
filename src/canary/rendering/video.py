"""Encode frames as a GIF (Pillow) or as an H.264 MP4 (PyAV, which includes ffmpeg)."""

import io
import itertools
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from PIL import Image

from canary.errors import CanaryError
from canary.rendering.panel import Picture

SECONDS, SLOWEST, FASTEST = 12, 4, 25  # a video's length; limits of its frames per second
REST = 2.0  # seconds of the last frame


def video_format(name: str) -> str:
    """gif or mp4, from a file name; raises if it cannot be written here."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if ending not in ("gif", "mp4"):
        raise CanaryError(f"A video is a .gif or .mp4 file, not {name!r}.")
    if ending == "mp4":
        _av()
    return ending


def frame_rate(count: int) -> float:
    """Frames per second for a video of `count` frames; a GIF counts in hundredths of a second."""
    rate = min(max(count / SECONDS, SLOWEST), FASTEST)
    return 100 / round(100 / rate)


def encode(frames: Iterable[Picture], format: str, rate: float) -> bytes:
    """The whole file; the last frame is shown for `REST` seconds."""

    def with_rest() -> Iterator[Picture]:
        for frame in frames:
            yield frame
        yield from itertools.repeat(frame, round(REST * rate))

    return {"gif": _gif, "mp4": _mp4}[format](with_rest(), rate)


def _gif(frames: Iterator[Picture], rate: float) -> bytes:
    """A GIF with one palette for all frames and no dithering, which keeps colours plain and files
    small. Pillow stores a repeated frame once, with a longer duration."""
    first = next(frames)
    # The palette depends on all frames, so they are kept, compressed
    packed = [zlib.compress(frame.tobytes(), 1) for frame in itertools.chain([first], frames)]

    def unpack(data: bytes) -> Image.Image:
        return Image.fromarray(np.frombuffer(zlib.decompress(data), np.uint8).reshape(first.shape))

    sample = np.unique(np.linspace(0, len(packed) - 1, 6).astype(int))
    sheet = np.concatenate([np.asarray(unpack(packed[index])) for index in sample])
    palette = Image.fromarray(sheet).quantize(256, Image.Quantize.MAXCOVERAGE)
    images = (unpack(data).quantize(palette=palette, dither=Image.Dither.NONE) for data in packed)
    file, shown = io.BytesIO(), 10 * round(100 / rate)
    next(images).save(
        file, "GIF", save_all=True, disposal=1, append_images=images, duration=shown, loop=0
    )
    return file.getvalue()


def _mp4(frames: Iterator[Picture], rate: float) -> bytes:
    """H.264 in yuv420p, which every player supports; it needs even sides."""
    av, file, first = _av(), io.BytesIO(), next(frames)
    height, width = (side // 2 * 2 for side in first.shape[:2])
    with av.open(file, "w", format="mp4") as container:
        options = {"crf": "20", "preset": "medium"}
        stream = container.add_stream("libx264", rate=round(rate), options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for picture in itertools.chain([first], frames):
            even = np.ascontiguousarray(picture[:height, :width])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def _av() -> Any:
    try:
        import av
    except ImportError:
        raise CanaryError(
            'Writing .mp4 needs PyAV: run `pip install "canary-rl[video]"`, or name a .gif file.'
        ) from None
    return av
