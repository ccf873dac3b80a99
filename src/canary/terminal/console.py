"""A console on which text is text: control characters of names and files are shown, never obeyed.

A run directory, a configuration or a certificate may be called anything. An escape sequence in a
name could clear the screen or write another verdict over ours, so every character that a terminal
would act upon is printed as its code.
"""

import re
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

# C0 but tab and newline, DEL and C1, what turns the direction of writing, halves of characters, and
# what nobody sees, with which one name can look like another. (Joiners are seen: some scripts need
# them.)
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\u00ad\u180e\u200b\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """The text with every character that a terminal would act upon as its code, such as \\x1b."""
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
        """Strings are made printable before they are measured, so that a table has room for their
        codes."""
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
    """Standard error. FORCE_COLOR lets rich believe in a terminal; a log must not be animated
    because of it."""
    return PlainConsole(stderr=True, force_interactive=None if sys.stderr.isatty() else False)
