"""A console that shows control characters instead of obeying them.

A run or a certificate may have any name. An escape sequence in it could clear the screen or write
another verdict over ours, so characters that a terminal acts on are printed as their codes.
"""

import re
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

# C0 but tab and newline, DEL and C1, changes of the writing direction, surrogates, and invisible
# characters, which make two names look the same. Joiners are allowed: some scripts need them.
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\u00ad\u180e\u200b\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """The text with every character that a terminal acts on as its code, such as \\x1b."""
    return ACTING.sub(
        lambda match: match[0].encode("unicode_escape", "surrogatepass").decode(), text
    )


class PlainConsole(Console):
    """rich's console without markup: square brackets are square brackets."""

    def __init__(self, **settings: Any):
        super().__init__(markup=False, highlight=False, emoji=False, **settings)

    def say(self, *parts: str | Text | tuple[str, str]) -> None:
        """One line, however long; a part may be (text, style)."""
        self.print(Text.assemble(*parts), soft_wrap=True)

    def render_str(self, text: str, **how: Any) -> Text:
        """Strings are made printable before they are measured."""
        return super().render_str(printable(text), **how)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not ACTING.search(segment.text):
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def error_console() -> PlainConsole:
    """Standard error; FORCE_COLOR must not animate a log."""
    return PlainConsole(stderr=True, force_interactive=None if sys.stderr.isatty() else False)
