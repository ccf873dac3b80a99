"""The paper's remark on Gaussian tails (rem:gaussian): what a Gaussian with the same two moments
predicts.

Per seed of the paper's update, over the second half of training: z = (l - mu) / sigma of the episode
costs, the Gaussian probability of a violation, and by how many orders of magnitude it is too small.
"""

import math
from dataclasses import dataclass

from canary.reporting.results import Results
from canary.studies.paper.claims import own_update, verdict
from canary.studies.store import StoredStudy
from canary.studies.table import View, by_environment, median, row_lines
from canary.terminal.formatting import Line, Number

ABOUT = (
    "Medians over seeds, second half of training; `short by` counts orders of magnitude, over the "
    "seeds with a violation."
)
PUBLISHED = {"EcoAnt": (6.1, "1e-9", 6.3), "PointGoal2500": (5.0, "1e-7", 4.5)}
"""z, the Gaussian's prediction and by how many orders it is short, as the paper reports them."""


@dataclass(frozen=True)
class GaussianTail:
    """What a Gaussian with the moments of the cost predicts, beside the truth (rem:gaussian)."""

    deviations: float
    """z = (l - mu) / sigma; infinite if the cost does not vary."""
    log10_predicted: float
    """log10 of P(N(0, 1) > z), which may itself be too small for a float."""
    realised: float

    @property
    def log10_understatement(self) -> float:
        """By how many orders of magnitude the Gaussian understates the violations; -inf without
        any."""
        return -math.inf if self.realised == 0 else math.log10(self.realised) - self.log10_predicted


def gaussian_tail(mean: float, deviation: float, limit: float, violation: float) -> GaussianTail:
    """The Gaussian prediction for a policy whose violation probability is known."""
    from scipy.special import log_ndtr

    if deviation > 0:
        z = (limit - mean) / deviation
    else:
        z = math.inf if limit >= mean else -math.inf
    return GaussianTail(z, float(log_ndtr(-z)) / math.log(10), violation)


def view(study: StoredStudy) -> View:
    lines: list[Line] = []
    for environment, rows in by_environment(study.rows).items():
        lines += row_lines(rows, _cells)
        if environment in PUBLISHED:
            z, predicted, short = PUBLISHED[environment]
            line = {"z": Number(z), "Gaussian prediction": predicted, "short by": Number(short)}
            lines.append({"row": f"*{environment}, published*"} | line)
    return View("\n".join((ABOUT, *_claims(study))), lines)


def _claims(study: StoredStudy) -> list[str]:
    """A sentence on each environment that is trained."""
    found = []
    for environment in by_environment(study.shown):
        row = own_update(study.shown, environment, "canary")
        short = None if row is None else _cells(row)["short by"]
        if isinstance(short, Number) and short.value is not None:
            here = f"by {short.value:.1f} on {environment} with the authors' reading"
            claim = "a Gaussian understates P by several orders of magnitude"
            found.append(verdict(claim, here, short.value >= 2))
    return found


def _cells(row: Results) -> Line:
    names, limit = ("cost", "cost_deviation", "violation"), row.constraint.limit
    known = [[one[name] for name in names] for one in row.seeds.values()]
    known = [
        (mean, deviation, p) for mean, deviation, p in known if None not in (mean, deviation, p)
    ]
    tails = [gaussian_tail(mean, deviation, limit, p) for mean, deviation, p in known]
    short = [tail.log10_understatement for tail, (*_, p) in zip(tails, known, strict=True) if p > 0]
    predicted = median([tail.log10_predicted for tail in tails])
    return {
        "z": Number(median([tail.deviations for tail in tails])),
        "Gaussian prediction": None if predicted is None else f"1e{predicted:.1f}",
        "realised P": Number(median([p for *_, p in known]), epsilon=row.epsilon),
        "short by": Number(median(short)),
        "seeds with a violation": f"{len(short)} of {len(tails)}",
    }
