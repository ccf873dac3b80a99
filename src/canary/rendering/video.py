"""Frames as the bytes of a GIF (Pillow) or of an H.264 MP4 (PyAV, which brings its own ffmpeg)."""

import io
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image

from canary.errors import CanaryError
from canary.rendering.episode import Picture

FORMATS = ("gif", "mp4")
SECONDS, SLOWEST, FASTEST = 12, 4, 25  # a video lasts about so long, within these frames per second
PLAIN = 48  # entries of a GIF's palette for the commonest colours; the others are mixtures
REST = 2.0  # seconds for which the last frame stays


def video_format(name: str) -> str:
    """The format that a file name asks for; a sentence if there is none, or if it cannot be written
    here."""
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if ending not in FORMATS:
        raise CanaryError(
            f"A video is written as .gif or .mp4, so {name!r} cannot be; change its ending."
        )
    if ending == "mp4":
        _av()
    return ending


def frame_rate(count: int) -> float:
    """Frames per second: few frames are shown slowly, many quickly. GIF knows hundredths of a
    second only."""
    rate = min(max(count / SECONDS, SLOWEST), FASTEST)
    return 100 / round(100 / rate)


def encode(frames: Iterable[Picture], format: str, rate: float) -> bytes:
    """The whole file. Frames are taken one by one and never held all at once as pictures."""
    return {"gif": _gif, "mp4": _mp4}[format](iter(frames), rate)


def _gif(frames: Iterator[Picture], rate: float) -> bytes:
    """One palette for all frames, and no dithering: flat colours stay flat, and what does not
    change costs nothing."""
    first = next(frames)
    # The palette needs to know the last frame too, and a few hundred pictures would fill the
    # memory.
    packed = [zlib.compress(frame.tobytes(), 1) for frame in itertools.chain([first], frames)]

    def unpack(data: bytes) -> Image.Image:
        return Image.fromarray(np.frombuffer(zlib.decompress(data), np.uint8).reshape(first.shape))

    sample = np.unique(np.linspace(0, len(packed) - 1, 6).astype(int))
    palette = _palette([unpack(packed[index]) for index in sample])
    images = (unpack(data).quantize(palette=palette, dither=Image.Dither.NONE) for data in packed)
    shown = [10 * round(100 / rate)] * (len(packed) - 1) + [round(1000 * REST)]
    file = io.BytesIO()
    next(images).save(
        file, "GIF", save_all=True, append_images=images, duration=shown, loop=0, disposal=1
    )
    return file.getvalue()


def _palette(images: Sequence[Image.Image]) -> Image.Image:
    """256 colours that suit all of these; large plain areas keep their colour exactly."""
    sheet = Image.new("RGB", (images[0].width, images[0].height * len(images)))
    for index, image in enumerate(images):
        sheet.paste(image, (0, index * image.height))
    mixed = np.reshape(
        sheet.quantize(256 - PLAIN, Image.Quantize.MEDIANCUT).getpalette() or [], (-1, 3)
    )
    red, green, blue = np.moveaxis(np.asarray(sheet, np.uint32), -1, 0)
    colours, counts = np.unique(red << 16 | green << 8 | blue, return_counts=True)
    common = colours[np.argsort(counts)[::-1][:PLAIN]]
    exact = np.stack([common >> 16, common >> 8 & 255, common & 255], axis=-1).astype(int)
    # Pillow looks for the nearest colour on a coarse grid, where a near one could come before the
    # exact one.
    kept = np.empty((0, 3), int)
    for colour in np.concatenate([exact, mixed]):
        if not (np.abs(kept - colour).max(-1) <= 8).any():
            kept = np.append(kept, colour[None], axis=0)
    palette = Image.new("P", (1, 1))
    palette.putpalette(kept.ravel().tolist())
    return palette


def _mp4(frames: Iterator[Picture], rate: float) -> bytes:
    """H.264 in yuv420p, which every player shows; it needs even sides."""
    av = _av()
    first = next(frames)
    height, width = (side // 2 * 2 for side in first.shape[:2])
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream(
            "libx264", rate=round(rate), options={"crf": "20", "preset": "medium"}
        )
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        last = first
        for picture in itertools.chain([first], frames):
            last = picture
            container.mux(stream.encode(_video_frame(av, picture, height, width)))
        for _ in range(round(REST * rate)):
            container.mux(stream.encode(_video_frame(av, last, height, width)))
        container.mux(stream.encode())
    return file.getvalue()


def _video_frame(av: Any, picture: Picture, height: int, width: int) -> Any:
    return av.VideoFrame.from_ndarray(
        np.ascontiguousarray(picture[:height, :width]), format="rgb24"
    )


def _av() -> Any:
    try:
        import av
    except ImportError:
        raise CanaryError(
            'Writing .mp4 needs PyAV: install it with `pip install "canary-rl[video]"`, or name a '
            ".gif file."
        ) from None
    return av
