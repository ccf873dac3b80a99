"""The paper's remark on Gaussian tails (rem:gaussian): what a Gaussian with the same two moments
predicts.

Per seed, over the second half of training: z = (l - mu) / sigma of the episode costs, the Gaussian
probability of a violation, and by how many orders of magnitude it is too small.
"""

from canary.numerics.statistics import gaussian_tail
from canary.studies.store import StoredRow, StoredStudy
from canary.studies.table import View, median, row_lines
from canary.terminal.formatting import Line, Number

ABOUT = (
    "Medians over seeds, second half of training; `short by` counts orders of magnitude, over the "
    "seeds with a violation.\nThe paper: z = 6.1 on EcoAnt and 5.0 on PointGoal, where a Gaussian "
    "is short by 6 and 4 orders of magnitude."
)


def view(study: StoredStudy) -> View:
    return View(ABOUT, row_lines(study.rows, _cells))


def _cells(row: StoredRow) -> Line:
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
