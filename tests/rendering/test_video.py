"""Files: they open again with the right frames, and what cannot be written is a sentence."""

import io

import numpy as np
import pytest
from PIL import Image

from canary.errors import CanaryError
from canary.rendering.canvas import RED
from canary.rendering.video import encode, video_format


def moving_square(count: int) -> list[np.ndarray]:
    frames = np.full((count, 60, 81, 3), 255, np.uint8)
    for index, frame in enumerate(frames):
        frame[40:42, 3 * index % 60 :] = 251  # rare, and nearly white
        frame[10:30, index : index + 20] = [int(RED[i : i + 2], 16) for i in (1, 3, 5)]
    return list(frames)


def test_a_gif_opens_again_frame_by_frame_with_its_plain_colours():
    frames = moving_square(40)
    image = Image.open(io.BytesIO(encode(iter(frames), "gif", 10.0)))
    assert (image.n_frames, image.size) == (40, (81, 60))
    shown = []
    for index, frame in enumerate(frames):
        image.seek(index)
        shown.append(image.info["duration"])
        picture = np.asarray(image.convert("RGB"))
        assert (picture[:40] == frame[:40]).all()
        assert np.abs(picture.astype(int) - frame).max() <= 8
    assert shown == [100] * 39 + [2000]


def test_an_mp4_opens_again():
    av = pytest.importorskip("av")
    frames = moving_square(30)
    with av.open(io.BytesIO(encode(iter(frames), "mp4", 10.0))) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert container.streams.video[0].average_rate == 10
    assert len(pictures) == 30 + 20  # the last frame stays for two seconds
    assert pictures[0].shape == (60, 80, 3)  # even sides
    for index in (0, 29, 49):
        assert np.abs(pictures[index].astype(int) - frames[min(index, 29)][:, :80]).mean() < 6


@pytest.mark.parametrize("name", ["worst.avi", "worst", "gif", ".", "a.gif.png"])
def test_other_endings_are_a_sentence(name):
    with pytest.raises(CanaryError, match=r"\.gif or \.mp4"):
        video_format(name)
    assert video_format("A.GIF") == "gif"
