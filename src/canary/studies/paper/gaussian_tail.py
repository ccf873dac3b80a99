"""The paper's remark on Gaussian tails (rem:gaussian): what a Gaussian with the same two moments
predicts.

Per seed, over the second half of training: z = (l - mu) / sigma of the episode costs, the Gaussian
probability of a violation, and by how many orders of magnitude it is too small.
"""

from canary.numerics.statistics import gaussian_tail
from canary.studies.page import Line, Numbers, Page, Paths, Row
from canary.studies.table import middle, probability, shown


def save(page: Page) -> Paths:
    tails = {row.name: _tails(row) for row in page.shown}
    return page.write(
        "Medians over seeds, second half of training; the last but one is over the seeds with a "
        "violation.\nThe paper: z = 6.1 on EcoAnt and 5.0 on PointGoal, where a Gaussian is short "
        "by 6 and 4 orders of magnitude.",
        page.lines(lambda row: _cells(tails[row.name])),
        [seed for found in tails.values() for seed in found],
    )


def _tails(row: Row) -> list[Numbers]:
    """The Gaussian tail of every seed that has episodes."""
    found = []
    for seed, one in row.seeds.items():
        mean, deviation, violation = (one[key] for key in ("cost", "cost_deviation", "violation"))
        if None not in (mean, deviation, violation):
            tail = gaussian_tail(mean, deviation, row.limit, violation)
            short = tail.log10_understatement if violation > 0 else None
            numbers = {"z": tail.deviations, "log10_predicted": tail.log10_predicted}
            numbers |= {"violation": violation, "orders_short": short}
            found.append({"row": row.name, "environment": row.environment, "seed": seed} | numbers)
    return found


def _cells(seeds: list[Numbers]) -> Line:
    short = [seed["orders_short"] for seed in seeds if seed["orders_short"] is not None]
    z, predicted, realised = (
        middle([seed[key] for seed in seeds]) for key in ("z", "log10_predicted", "violation")
    )
    orders = f"{middle(short):.1f} ({len(short)} of {len(seeds)} seeds)" if short else "-"
    return {
        "z": shown(z, ".2f"),
        "Gaussian prediction": "-" if predicted is None else f"1e{predicted:.1f}",
        "realised P": probability(realised),
        "short by, orders of magnitude": orders,
        "seeds": str(len(seeds)),
    }
