"""What the paper claims of its figures, beside what is measured here."""

from collections.abc import Iterable

from canary.reporting.results import Results


def own_update(rows: Iterable[Results], environment: str, algorithm: str) -> Results | None:
    """The row of the authors' reading, with the paper's networks if it is trained."""
    found = [
        row
        for row in rows
        if (row.environment, row.about["algorithm"]) == (environment, algorithm)
        and row.about["preset"] == "authors"
    ]
    return min(found, key=lambda row: len(row.about["overrides"]), default=None)


def verdict(claim: str, here: str, holds: bool) -> str:
    """A claim of the paper, what is measured here, and whether the claim holds."""
    return f"Claim: {claim}. Here: {here}; it {'holds' if holds else 'does not hold'}."
