"""The drawing of each environment; a subclass is drawn as what it is derived from."""

from collections.abc import Callable
from typing import Any

from canary.environments.eco_ant import EcoAnt
from canary.environments.icy_lake import IcyLake
from canary.environments.point_goal import PointGoal
from canary.errors import CanaryError
from canary.rendering import eco_ant, icy_lake, point_goal
from canary.rendering.episode import Drawing

DRAWINGS: dict[type, Drawing] = {
    IcyLake: icy_lake.draw,
    PointGoal: point_goal.draw,
    EcoAnt: eco_ant.draw,
}
CHECKS: dict[type, Callable[[], None]] = {EcoAnt: eco_ant.check_graphics}
"""What raises a sentence if a drawing cannot work on this machine."""


def drawing_for(environment: Any) -> Drawing:
    """The drawing of an environment, if there is one and it can work here."""
    for kind in type(environment).__mro__:
        if kind in DRAWINGS:
            CHECKS.get(kind, lambda: None)()
            return DRAWINGS[kind]
    raise CanaryError(
        f"canary has no drawing of {type(environment).__name__}; pass one in Python: "
        "run.video(drawing=...), see docs/rendering.md."
    )
