"""Episodes side by side: red exactly above the limit, strangers' drawings, and the files."""

import io

import numpy as np
import pytest
from PIL import Image

from canary.errors import CanaryError
from canary.rendering import icy_lake
from canary.rendering.panel import MARGIN, RED, SIZE, compose
from canary.rendering.video import encode
from rendering.recorded_episodes import LAKE, lake_walk

BREACH = np.frombuffer(bytes.fromhex(RED[1:]), np.uint8)
# Tile 4 is ice: cost 1, 2, 2, 3
WORST = lake_walk([0, 1, 4, 4, 3, 4, 5, 8], caption="worst of 9 episodes")
MEDIAN = lake_walk([0, 3, 6, 7, 8])


def frames_of(episodes, limit, moments):
    return list(compose(LAKE, episodes, icy_lake.draw, limit=limit, title="lake", moments=moments))


def column(frame, index):
    left = MARGIN + index * (SIZE + MARGIN)
    return frame[:, left : left + SIZE]


def is_red(picture):
    return bool((picture == BREACH).all(-1).any())


def test_frames_turn_red_exactly_above_the_limit_and_an_ended_episode_stays():
    frames = frames_of([WORST, MEDIAN], 2.0, range(8))
    assert {(frame.shape, frame.dtype) for frame in frames} == {
        ((746, 2 * 480 + 3 * 24, 3), np.dtype(np.uint8))
    }
    assert [is_red(column(frame, 0)) for frame in frames] == [spent > 2.0 for spent in WORST.spent]
    assert WORST.spent[3] == 2.0  # a cost equal to the limit is no violation, and not red
    assert not any(is_red(column(frame, 1)) for frame in frames)
    assert (column(frames[4], 1) == column(frames[7], 1)).all()
    assert (column(frames[3], 1) != column(frames[4], 1)).any()
    assert (column(frames[4], 0) != column(frames[7], 0)).any()


@pytest.mark.parametrize(
    ("drawing", "what"),
    [
        (lambda *_: iter([]), "not NoneType"),
        (lambda *_: [np.zeros((4, 4, 3), np.uint8)], r"not uint8\[4, 4, 3\]"),
        (lambda *_: [np.zeros((SIZE, SIZE, 3))], "not float64"),
    ],
)
def test_a_wrong_drawing_is_a_sentence(drawing, what):
    with pytest.raises(CanaryError, match=what):
        list(compose(LAKE, [MEDIAN], drawing, limit=1.0, title="", moments=range(3)))


def test_a_drawing_is_closed_after_its_last_frame():
    closed = []

    def draw(environment, episode, moments, size):
        try:
            for _ in moments:
                yield np.zeros((size, size, 3), np.uint8)
        finally:
            closed.append(moments)

    list(compose(LAKE, [WORST, MEDIAN], draw, limit=1.0, title="", moments=[0, 3, 6, 7]))
    assert sorted(closed) == [[0, 3, 4], [0, 3, 6, 7]]


def moving_square(count: int) -> list[np.ndarray]:
    frames = np.full((count, 60, 81, 3), 255, np.uint8)
    for index, frame in enumerate(frames):
        frame[40:42, 3 * index % 60 :] = 251  # rare, and nearly white
        frame[10:30, index : index + 20] = BREACH
    return list(frames)


def test_a_gif_opens_again_frame_by_frame_with_its_colours():
    frames = moving_square(40)
    image = Image.open(io.BytesIO(encode(iter(frames), "gif", 10.0)))
    assert (image.n_frames, image.size) == (40, (81, 60))
    shown = []
    for index, frame in enumerate(frames):
        image.seek(index)
        shown.append(image.info["duration"])
        picture = np.asarray(image.convert("RGB"))
        assert is_red(picture)
        assert np.abs(picture.astype(int) - frame).max() <= 8
    assert shown == [100] * 39 + [2100]  # the last frame stays for two seconds


def test_an_mp4_opens_again():
    av = pytest.importorskip("av")
    frames = moving_square(30)
    with av.open(io.BytesIO(encode(iter(frames), "mp4", 10.0))) as container:
        pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert container.streams.video[0].average_rate == 10
    assert len(pictures) == 30 + 20
    assert pictures[0].shape == (60, 80, 3)  # even sides
    for index in (0, 29, 49):
        assert np.abs(pictures[index].astype(int) - frames[min(index, 29)][:, :80]).mean() < 6
