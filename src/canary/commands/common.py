"""What several commands share: option types, lists of seeds, whole numbers."""

import re
from typing import Annotated, Any

from tyro.conf import arg

from canary.errors import CanaryError

MOST_SEEDS = 10_000

Json = Annotated[str | None, arg(metavar="FILE|-", help_behavior_hint="")]
Out = Annotated[str, arg(metavar="DIR", help_behavior_hint="(default: runs)")]
Switch = Annotated[bool, arg(help_behavior_hint="")]


def flag(metavar: str, default: str = "") -> Any:
    return arg(metavar=metavar, help_behavior_hint=f"(default: {default})" if default else "")


def parse_seeds(text: str) -> int | tuple[int, ...]:
    """`4` is a number of seeds; `3,5,7`, `0-9` and `0-3,7` name them."""
    if re.fullmatch(r"\d+", text) and int(text) <= MOST_SEEDS:
        return int(text)
    seeds: list[int] = []
    for part in text.rstrip(",").split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None or text.isdecimal():
            raise CanaryError(
                f"--seeds takes a number up to {MOST_SEEDS} or a list such as 3,5,7 or 0-9, not {text!r}."
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MOST_SEEDS:
            raise CanaryError(
                f"--seeds {part} is no range of up to {MOST_SEEDS} seeds; write 0-9, for example."
            )
        seeds.extend(range(first, last + 1))
    return tuple(seeds)


def whole(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,12}", text):
        raise CanaryError(f"{name} takes a whole number, not {text!r}.")
    return int(text)
