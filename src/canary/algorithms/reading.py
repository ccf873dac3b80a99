"""Two readings of the published trust region (docs/readings.md).

The paper's equations leave open how critics are fitted and what they see, and the authors' public
code departs from the equations in one place, the units of the surrogates.
"""

from dataclasses import dataclass
from typing import Literal

ReadingName = Literal["equations", "authors"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What the two readings do differently."""

    episode_units: bool
    """Constraint surrogates are means over steps times the mean episode length, as the constraint's
    value is of an episode. Else they are means over steps."""
    joint_clip: bool
    """One gradient clip for all scalar critics together. Else one for each."""
    folded_critic: bool
    """Canary's second critic learns beta c~ + 2 l c, both critics in raw units. Else it learns c~,
    in units of the limit. With a joint clip the raw critic leaves the others almost no gradient."""
    blind_cpo: bool
    """CPO's policy and critics do not see the spent cost."""


READINGS: dict[ReadingName, Reading] = {
    "equations": Reading(
        episode_units=True, joint_clip=False, folded_critic=False, blind_cpo=False
    ),
    "authors": Reading(episode_units=False, joint_clip=True, folded_critic=True, blind_cpo=True),
}
