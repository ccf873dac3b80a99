"""What a check can say: a sentence that names the field, what was found and what is expected."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from canary.errors import CanaryError

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """An error makes training wrong or impossible; a warning is likely a mistake; a note is worth
    knowing."""

    level: Level
    field: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def error(field: str, text: str) -> Finding:
    return Finding("error", field, text)


def warning(field: str, text: str) -> Finding:
    return Finding("warning", field, text)


def note(field: str, text: str) -> Finding:
    return Finding("note", field, text)


def raise_first_error(findings: Sequence[Finding]) -> None:
    """Raise the sentence of the first error, and say if there are more."""
    errors = [finding.text for finding in findings if finding.level == "error"]
    if errors:
        more = (
            f" (and {len(errors) - 1} more: `canary check-env` lists them)"
            if len(errors) > 1
            else ""
        )
        raise CanaryError(f"{errors[0].removesuffix('.')}{more}.")
