"""The cases of the recovery rule. No JAX: reports need their names."""

from enum import IntEnum


class Tier(IntEnum):
    """Which case of eq:recovery produced a step."""

    NOMINAL = 0
    BOUND_RESTORATION = 1
    MEAN_RESTORATION = 2
    NO_STEP = 3

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")
