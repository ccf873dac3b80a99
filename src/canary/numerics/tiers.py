"""The cases of the recovery rule (eq:recovery), with words for each."""

from enum import IntEnum


class Tier(IntEnum):
    """Which case of eq:recovery produced a step."""

    NOMINAL = 0
    BOUND_RESTORATION = 1
    MEAN_RESTORATION = 2
    NO_STEP = 3

    @property
    def label(self) -> str:
        """A few words, for a table."""
        return self.name.lower().replace("_", " ")

    @property
    def sentence(self) -> str:
        """What happened, in plain words."""
        return _SENTENCES[self]


_SENTENCES = {
    Tier.NOMINAL: "One step can meet every constraint: it does, and raises the reward as far as it goes.",
    Tier.BOUND_RESTORATION: "The risk bound is out of reach of one step: it is lowered as far as it goes.",
    Tier.MEAN_RESTORATION: "The mean limit is out of reach of one step: the mean goes down as far as it can.",
    Tier.NO_STEP: "There is no usable direction: the policy stays as it is.",
}
