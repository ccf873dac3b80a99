"""The paper's remark on Gaussian tails (rem:gaussian): the prediction of a Gaussian with the same
two moments.

For each seed of the paper's update, over the second half of training: z = (l - mu) / sigma of the
episode costs, the Gaussian probability Phi(-z) of a violation, and its error in orders of magnitude.
"""

import math
from typing import NamedTuple

from scipy.special import log_ndtr

from canary.reporting.results import Results
from canary.studies import table
from canary.studies.store import StoredStudy
from canary.terminal.formatting import Line, Number

ABOUT = (
    "Medians over seeds, second half of training; `short by` counts orders of magnitude, over the "
    "seeds with a violation."
)
PUBLISHED = {"EcoAnt": (6.1, "1e-9", 6.3), "PointGoal2500": (5.0, "1e-7", 4.5)}
"""The paper's z, Gaussian prediction, and number of orders by which it is too small."""


class GaussianTail(NamedTuple):
    deviations: float
    """z = (l - mu) / sigma; infinite if the cost does not vary."""
    predicted: float
    """log10 of Phi(-z), because Phi(-z) may be too small for a float."""
    short_by: float | None
    """log10 of the true probability minus `predicted`; None without a violation."""


def gaussian_tail(mean: float, deviation: float, limit: float, violation: float) -> GaussianTail:
    """The Gaussian's prediction for a policy whose violation probability is known."""
    z = (limit - mean) / deviation if deviation else math.copysign(math.inf, limit - mean)
    predicted = float(log_ndtr(-z)) / math.log(10)
    return GaussianTail(z, predicted, math.log10(violation) - predicted if violation else None)


def view(study: StoredStudy) -> table.View:
    lines: list[Line] = []
    claims = [ABOUT]
    for environment, rows in table.by_environment(study.rows).items():
        lines += table.row_lines(rows, _cells)
        if environment in PUBLISHED:
            z, predicted, short = PUBLISHED[environment]
            line = {"z": Number(z), "Gaussian prediction": predicted, "short by": Number(short)}
            lines.append({"row": f"*{environment}, published*"} | line)
        own = table.own_update(study.shown, environment, "canary")
        short = None if own is None else table.median(_short_by(own))
        if short is not None:
            here = f"by {short:.1f} on {environment} with the authors' reading"
            claim = "a Gaussian understates P by several orders of magnitude"
            claims.append(table.verdict(claim, here, short >= 2))
    return table.View("\n".join(claims), lines)


def _tails(row: Results) -> list[GaussianTail]:
    names, limit = ("cost", "cost_deviation", "violation"), row.constraint.limit
    known = ([one[name] for name in names] for one in row.seeds.values())
    return [gaussian_tail(m, s, limit, p) for m, s, p in known if None not in (m, s, p)]


def _short_by(row: Results) -> list[float]:
    return [tail.short_by for tail in _tails(row) if tail.short_by is not None]


def _cells(row: Results) -> Line:
    tails, short = _tails(row), _short_by(row)
    predicted = table.median([tail.predicted for tail in tails])
    return {
        "z": Number(table.median([tail.deviations for tail in tails])),
        "Gaussian prediction": None if predicted is None else f"1e{predicted:.1f}",
        "realised P": Number(table.median(row.each("violation")), epsilon=row.epsilon),
        "short by": Number(table.median(short)),
        "seeds with a violation": f"{len(short)} of {len(tails)}",
    }
