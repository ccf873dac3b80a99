"""The drawing that an environment states, or that the caller passes for it."""

import importlib
from typing import Any

from canary.environments.protocol import stated_drawing
from canary.errors import CanaryError
from canary.rendering.episode import Drawing


def drawing_for(environment: Any) -> Drawing:
    """The drawing of an environment, if there is one and it can work here."""
    drawing = stated_drawing(environment)
    if drawing is None:
        raise CanaryError(
            f"canary has no drawing of {type(environment).__name__}; pass one in Python: "
            "run.video(drawing=...), see docs/rendering.md."
        )
    if not isinstance(drawing, str):
        return drawing
    module, _, function = drawing.partition(":")
    home = importlib.import_module(module)
    getattr(home, "check_graphics", lambda: None)()  # raises a sentence if it cannot work on this machine
    return getattr(home, function)
