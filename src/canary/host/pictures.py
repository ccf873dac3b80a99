"""Pictures of an episode by the environment's own renderer, `render_mode="rgb_array"`.

The environments that are trained on are made without a renderer, which costs time and may need a
screen. So one more is made that has it, and the episode is played again in it: its seed and its
actions are all that there is to know about it.
"""

import dataclasses
import inspect
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from canary.errors import CanaryError
from canary.host.player import Player, Recipe, factory_of
from canary.host.references import describe

MODE = "rgb_array"
INSTEAD = "or draw it yourself in Python, run.video(drawing=...), see docs/rendering.md"
SCREEN = " (without a screen MuJoCo draws with MUJOCO_GL=egl or MUJOCO_GL=osmesa)"

Shot = tuple[UInt8[np.ndarray, "height width 3"], Float[np.ndarray, "obs"]]
"""A picture, and what the environment showed to the policy at that moment."""


def shots(
    recipe: Recipe,
    seed: int,
    actions: Float[np.ndarray, "time action"],
    moments: Sequence[int],
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
            f"let it take one and hand it on to the environment, {INSTEAD}."
        )
    return dataclasses.replace(recipe, arguments=recipe.arguments | {"render_mode": MODE})


def _takes_mode(recipe: Recipe) -> bool:
    try:
        parameters = inspect.signature(factory_of(recipe)).parameters
    except (TypeError, ValueError):  # some built-in things have no signature; calling them tells
        return True
    return "render_mode" in parameters or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    )


def _picture(player: Player) -> UInt8[np.ndarray, "height width 3"]:
    try:
        picture: Any = player.render()
    except Exception as error:  # of the environment, or of a package or a screen that is missing
        screen = SCREEN if "OpenGL" in str(error) else ""
        raise CanaryError(
            f"{player.label} cannot be drawn here ({describe(error)}); repair that{screen}, "
            f"{INSTEAD}."
        ) from error
    if not (
        isinstance(picture, np.ndarray)
        and picture.ndim == 3
        and picture.shape[2] == 3
        and picture.size
        and picture.dtype == np.uint8
    ):
        what = (
            f"{picture.dtype}{list(picture.shape)}"
            if isinstance(picture, np.ndarray)
            else f"a {type(picture).__name__}"
        )
        raise CanaryError(
            f"render() of {player.label} returned {what}, not a uint8 array of shape "
            f"[height, width, 3]; repair that, {INSTEAD}."
        )
    return picture
