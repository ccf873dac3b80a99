"""The algorithms by name: the settings of each, and the function that makes it for a task."""

from collections.abc import Callable
from typing import Any, NamedTuple

from canary.algorithms.base import Algorithm, Task
from canary.algorithms.canary import CanaryConfig, make_canary


class Entry(NamedTuple):
    config: type
    make: Callable[[Any, Task], Algorithm]


ALGORITHMS = {"canary": Entry(CanaryConfig, make_canary)}
