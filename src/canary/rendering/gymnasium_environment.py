"""Draw a Gymnasium environment with its own renderer, `render_mode="rgb_array"`.

Training makes environments without a renderer, because it costs time and may need a screen. For a
video another environment is made with a renderer, and its episode is replayed by seed and actions.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, UInt32
from PIL import Image, ImageOps

from canary.environments.gymnasium_environment import GymnasiumEnvironment
from canary.errors import CanaryError
from canary.host.episodes import REWARD, Episodes
from canary.host.references import describe
from canary.rendering.panel import WHITE, Picture, RecordedEpisode

MODE = {"render_mode": "rgb_array"}
INSTEAD = "or pass a drawing of your own, run.video(drawing=...), see docs/rendering.md"


def draw(
    environment: GymnasiumEnvironment, episode: RecordedEpisode, moments: Sequence[int], size: int
) -> Iterator[Picture]:
    """A picture per moment. Warns if the replayed episode differs from the recorded one."""
    is_same, film = True, episode.states.inner
    taken = shots(environment, film.identity[0], film.action[1:], moments)
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
        yield np.asarray(ImageOps.pad(picture, (size, size), Image.Resampling.LANCZOS, WHITE))


def check_graphics(environment: GymnasiumEnvironment) -> None:
    """Raise if the environment cannot be drawn here, before any episode is played."""
    next(shots(environment, np.zeros(2, np.uint32), np.zeros((0, 1)), [0]))


def shots(
    environment: GymnasiumEnvironment,
    identity: UInt32[np.ndarray, "2"],
    actions: Float[np.ndarray, "time action"],
    moments: Sequence[int],
) -> Iterator[tuple[Image.Image, Float[np.ndarray, "obs"]]]:
    """Replay an episode; yields a picture and the observation at each of these increasing times.

    If the environment does not follow its seed and ends earlier, the last picture is repeated.
    """
    recipe, sizes, time = environment.recipe, environment.sizes, 0
    one = Episodes(recipe, 1, sizes)
    if getattr(one.players[0].environment, "render_mode", None) != MODE["render_mode"]:
        try:
            one = Episodes(replace(recipe, arguments=recipe.arguments | MODE), 1, sizes)
        except CanaryError as error:
            raise CanaryError(
                f"{recipe.label} makes no pictures: it must take render_mode='rgb_array' and have it "
                f"in metadata['render_modes'] ({error}); {INSTEAD}."
            ) from error
    one.start(one.everyone, identity[None])
    for moment in moments:
        for action in actions[time:moment]:
            if not one.done.any():
                one.step(one.everyone, action[None], 1.0)
        time = moment
        try:
            picture = Image.fromarray(one.players[0].environment.render()).convert("RGB")
        except Exception as error:  # from the environment, a missing package or a missing screen
            screen = " (without a screen set MUJOCO_GL=egl)" if "OpenGL" in str(error) else ""
            raise CanaryError(
                f"{recipe.label} cannot be drawn here ({describe(error)}){screen}; repair that, "
                f"{INSTEAD}."
            ) from error
        yield picture, one.table[0, :REWARD].copy()
