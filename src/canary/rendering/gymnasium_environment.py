"""A Gymnasium environment by its own renderer, `render_mode="rgb_array"`.

The environments that are trained on have no renderer, which costs time and may need a screen. So
one more is made with a renderer, and the episode is played again in it by its seed and actions.
"""

import dataclasses
import inspect
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image

from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.errors import CanaryError
from canary.host.episodes import SEED_BITS
from canary.host.player import Player, Recipe, factory_of
from canary.host.references import describe
from canary.rendering.canvas import WHITE
from canary.rendering.episode import Picture, RecordedEpisode

MODE = "rgb_array"
INSTEAD = "or draw it yourself in Python, run.video(drawing=...), see docs/rendering.md"
SCREEN = " (without a screen MuJoCo draws with MUJOCO_GL=egl or MUJOCO_GL=osmesa)"

Shot = tuple[Picture, Float[np.ndarray, "obs"]]
"""A picture, and the observation at that moment."""


def draw(
    environment: GymnasiumEnvironment, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """A picture per moment. A warning says where the replayed episode differs from the recorded
    one."""
    is_same, film = True, episode.states.inner
    seed = int(np.asarray(film.identity)[0, 0] & SEED_BITS)
    taken = shots(environment.recipe, seed, np.asarray(film.action)[1:], moments)
    for now, (picture, seen) in zip(moments, taken, strict=True):
        recorded = episode.states.observation[now]
        if is_same and not np.allclose(seen, recorded, rtol=1e-5, atol=1e-6, equal_nan=True):
            is_same = False
            warnings.warn(
                f"Episode {episode.number} of seed {episode.seed} differs by step {now} when it is "
                "played again for its pictures: the environment is not a function of its seed and "
                "actions, and the pictures do not belong to the costs beside them.",
                stacklevel=2,
            )
        yield fitted(picture, size)


def check_graphics(environment: GymnasiumEnvironment) -> None:
    """Raise a sentence if it cannot be drawn here, before any episode is played."""
    actions = np.zeros((0, environment.first.action_size))
    with closing(shots(environment.recipe, 0, actions, [0])) as taken:
        next(taken)


def shots(
    recipe: Recipe, seed: int, actions: Float[np.ndarray, "time action"], moments: Sequence[int]
) -> Generator[Shot, None, None]:
    """Play an episode again and take a picture at each of these times, which increase.

    An environment that does not follow its seed may end earlier than it did; it then stays there.
    """
    with closing(Player(with_renderer(recipe))) as player:
        seen, time, ended = player.reset(seed), 0, False
        for moment in moments:
            for action in player.actions(actions[time:moment]):
                if not ended:
                    seen, (_, _, terminated, truncated) = player.step(action)
                    ended = terminated or truncated
            time = moment
            yield _picture(player), player.encode([seen])[0]


def with_renderer(recipe: Recipe) -> Recipe:
    """The recipe of an environment that makes pictures; a sentence if there is none."""
    with closing(Player(recipe)) as plain:
        modes, mode = plain.render_modes, plain.render_mode
    if mode == MODE:
        return recipe
    if MODE not in modes:
        others = f"; it has {', '.join(map(repr, modes))}" if modes else ""
        raise CanaryError(
            f"{recipe.label} makes no pictures: its metadata['render_modes'] has no {MODE!r}"
            f"{others}. Add it there and to render(), {INSTEAD}."
        )
    if not _takes_mode(recipe):
        raise CanaryError(
            f"{recipe.label} takes no argument render_mode, so it cannot be asked for pictures; "
            f"let it take one and pass it to the environment, {INSTEAD}."
        )
    return dataclasses.replace(recipe, arguments=recipe.arguments | {"render_mode": MODE})


def _takes_mode(recipe: Recipe) -> bool:
    try:
        parameters = inspect.signature(factory_of(recipe)).parameters
    except (TypeError, ValueError):  # some built-in things have no signature
        return True
    return "render_mode" in parameters or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    )


def _picture(player: Player) -> Picture:
    try:
        picture: Any = player.render()
    except Exception as error:  # of the environment, or of a package or a screen that is missing
        screen = SCREEN if "OpenGL" in str(error) else ""
        raise CanaryError(
            f"{player.label} cannot be drawn here ({describe(error)}); repair that{screen}, "
            f"{INSTEAD}."
        ) from error
    kind, shape = getattr(picture, "dtype", type(picture).__name__), np.shape(picture)
    if kind != np.uint8 or len(shape) != 3 or shape[2] != 3 or not picture.size:
        raise CanaryError(
            f"render() of {player.label} returned {kind}{list(shape)}, not a uint8 array of shape "
            f"[height, width, 3]; repair that, {INSTEAD}."
        )
    return picture


def fitted(picture: Picture, size: int) -> Picture:
    """The whole picture in the middle of a square, as large as possible."""
    height, width = picture.shape[:2]
    scale = size / max(height, width)
    shape = max(1, round(width * scale)), max(1, round(height * scale))
    square = Image.new("RGB", (size, size), WHITE)
    inside = Image.fromarray(picture).resize(shape, Image.Resampling.LANCZOS)
    square.paste(inside, ((size - shape[0]) // 2, (size - shape[1]) // 2))
    return np.asarray(square)
