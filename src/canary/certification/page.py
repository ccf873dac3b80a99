"""A certificate as one self-contained HTML page: verdict, numbers, two drawings, what was checked
and how to check it."""

import json
import math
import re
from typing import Any

import numpy as np

from canary.certification.certificate import constraint_of, result_name, results_about
from canary.certification.plan import POWER, Plan, clean_episodes, plan_for, planned_episodes
from canary.certification.verdict import decode_costs, percent
from canary.constraints import Chance, Mean, One, parts_of
from canary.terminal.certificate_table import footnote
from canary.terminal.formatting import number

BINS = 36
WIDTH, PLOT_LEFT, PLOT_RIGHT = 760, 200, 735
ROW, TOP = 26, 26
HEIGHT, FLOOR, EDGE = 200, 165, 40  # of the histogram
JUDGED = {
    "mean": "betting on each episode by those before it (Waudby-Smith and Ramdas), valid at all "
    "times together",
    "cvar": "the integrated survival function (Anderson), Clopper-Pearson at geometrically spaced "
    "order statistics; look j of an anytime test at level alpha / (j (j + 1))",
}


def render_page(certificate: dict[str, Any]) -> str:
    """The page as text; everything that comes from the certificate is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    pages = Environment(
        loader=PackageLoader("canary.certification", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    pages.filters.update(
        percent=_percent, number=_number, count=lambda value: f"{value:,}", json=json.dumps
    )
    parts = [_part(certificate, part) for part in parts_of(constraint_of(certificate))]
    return pages.get_template("certificate.html.jinja").render(
        c=certificate,
        parts=parts,
        text=" and ".join(part["text"] for part in parts),
        footnote=footnote(certificate["plan"]),
        carried=Markup(_carried(certificate)),
        shifted=any(result["changes"] for result in certificate["results"]),
        changed=certificate["origin"].get("environment_changes", []),
    )


def _part(certificate: dict[str, Any], constraint: One) -> dict[str, Any]:
    """What the page says about one constraint."""
    is_chance = isinstance(constraint, Chance)
    plan = plan_for(Plan(**certificate["plan"]), constraint)
    results = results_about(certificate, constraint)
    return {
        **_words(constraint),
        "results": results,
        "limit": constraint.limit,
        "share": constraint.share,
        "cost": constraint.cost,
        "cost_bound": plan.cost_bound,
        "say": _percent if is_chance else _number,
        "allowed": constraint.allowed,
        "method": JUDGED.get(constraint.kind),
        "intervals": intervals(results, constraint),
        "histogram": histogram(results, constraint.limit),
        "plans": plans(plan, constraint.epsilon) if isinstance(constraint, Chance) else [],
    }


def certificate_in(page: bytes) -> bytes:
    """The JSON text that a page carries; a ValueError if it carries none, or more than one."""
    found = re.findall(
        rb'<script type="application/json" id="certificate">(.*?)</script>', page, re.DOTALL
    )
    if len(found) != 1:
        raise ValueError(f"the page carries {len(found)} certificates")
    return found[0]


def _carried(certificate: dict[str, Any]) -> str:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(certificate, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _words(constraint: One) -> dict[str, str]:
    """The constraint as text, what it limits, and the symbol of that."""
    text = constraint.text.replace("<=", "\N{LESS-THAN OR EQUAL TO}")
    if isinstance(constraint, Chance):
        cost = "C" if constraint.number is None else constraint.cost
        allowed = percent(constraint.epsilon)
        text = f"P({cost} > {constraint.limit:g}) \N{LESS-THAN OR EQUAL TO} {allowed}"
        what = "violation probability" if constraint.number is None else constraint.label
        return {"text": text, "what": what, "sign": "P"}
    if isinstance(constraint, Mean):
        return {"text": text, "what": constraint.label, "sign": "mean"}
    what = f"mean {constraint.cost} of the worst {percent(constraint.share)} of episodes"
    return {"text": text, "what": what, "sign": "CVaR"}


def intervals(results: list[dict[str, Any]], constraint: One) -> dict[str, Any]:
    """The bounds of every result and what is allowed, in pixels on a common scale from 0."""
    allowed = constraint.allowed
    is_chance = isinstance(constraint, Chance)
    most = 1.0 if is_chance else math.inf
    uppers = (result["assessment"]["upper"] for result in results)
    largest = min(most, 1.15 * max(2 * allowed, *uppers))
    scale = (PLOT_RIGHT - PLOT_LEFT) / largest
    rows = []
    for index, result in enumerate(results):
        one, costs = result["assessment"], decode_costs(result["evidence"]["costs"])
        seen = one["rate"] if is_chance or not len(costs) else constraint.measure(costs)
        rows.append(
            {
                "label": result_name(result),
                "verdict": one["verdict"],
                "lower": PLOT_LEFT + scale * one["lower"],
                "upper": PLOT_LEFT + scale * one["upper"],
                "rate": None if seen is None else PLOT_LEFT + scale * seen,
                "y": TOP + ROW * (index + 0.5),
            }
        )
    bottom = TOP + ROW * len(rows)
    say = _percent if is_chance else _number
    return {
        "rows": rows,
        "allowed": PLOT_LEFT + scale * allowed,
        "ticks": [(PLOT_LEFT + scale * value, say(value)) for value in _ticks(largest)],
        "width": WIDTH,
        "height": bottom + 28,
        "top": TOP,
        "bottom": bottom,
        "left": PLOT_LEFT,
        "right": PLOT_RIGHT,
    }


def histogram(results: list[dict[str, Any]], limit: float) -> dict[str, Any] | None:
    """Episode costs of all policies in the unchanged environment, in pixels. The limit is an edge
    between two bars, and a cost equal to the limit lies below it: C > limit is strict."""
    nominal = [result for result in results if not result["changes"]]
    lists = [decode_costs(result["evidence"]["costs"]) for result in nominal]
    values = np.concatenate([np.zeros(0), *lists])
    if not len(values):
        return None
    low, high = min(0.0, values.min()), max(values.max(), limit)
    width = (high - low) / BINS or 1.0
    if np.all(values == np.rint(values)):
        width = max(1.0, np.ceil(width))
    above, below = np.floor((values - limit) / width), -np.ceil((limit - values) / width)
    index = np.where(values > limit, above, np.minimum(below, -1)).astype(int)
    first, last = min(index.min(), -1), max(index.max(), 0)
    heights = np.bincount(index - first, minlength=last - first + 1)
    scale, tall = (PLOT_RIGHT - EDGE) / len(heights), (FLOOR - 15) / heights.max()
    bars = [
        {
            "x": EDGE + scale * j,
            "width": max(scale - 1, 1),
            "y": FLOOR - tall * height,
            "height": tall * height,
            "violates": j + first >= 0,
            "count": int(height),
        }
        for j, height in enumerate(heights)
        if height
    ]
    edge = EDGE - scale * first
    start, end = limit + width * first, limit + width * (last + 1)
    ticks = [(edge + scale * (t - limit) / width, f"{t:g}") for t in _ticks(end) if start <= t]
    return {
        "bars": bars,
        "limit": edge,
        "ticks": ticks,
        "episodes": len(values),
        "width": WIDTH,
        "height": HEIGHT,
        "floor": FLOOR,
        "left": EDGE,
        "right": PLOT_RIGHT,
    }


def plans(plan: Plan, epsilon: float) -> list[tuple[str, str]]:
    """How many episodes a fixed plan would need, for a few true violation probabilities."""
    confidence = plan.corrected_confidence
    rows = [("0 (no violation is seen)", f"{clean_episodes(epsilon, confidence):,}")]
    for share in (0.25, 0.5, 0.75, 1.5, 2.0):
        if share * epsilon < 1:
            episodes = planned_episodes(
                epsilon, share * epsilon, confidence=confidence, power=POWER
            )
            rows.append(
                (percent(share * epsilon), f"{episodes:,}" if episodes else "more than 1,000,000")
            )
    return rows


def _ticks(largest: float, count: int = 6) -> list[float]:
    """Round numbers from 0 to `largest`."""
    if not largest > 0:
        return [0.0]
    step = 10 ** np.floor(np.log10(largest / count))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step * count >= largest)
    return [float(step * j) for j in range(int(largest / step) + 1)]


def _percent(value: float | None) -> str:
    return "unknown" if value is None else percent(value)


def _number(value: float | None) -> str:
    return "unavailable" if value is None else number(value)
