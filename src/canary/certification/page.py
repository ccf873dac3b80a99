"""A certificate as one self-contained HTML page: verdict, bounds, costs, what was checked and how to
check it."""

import json
import math
import re
from typing import Any

import numpy as np

from canary.certification.certificate import constraint_of, policy_name, results_about
from canary.certification.plan import Plan, largest_cost
from canary.certification.verdict import decode_costs, percent
from canary.constraints import Chance, One, parts_of
from canary.terminal.certificate_table import footnote
from canary.terminal.formatting import number

BINS = 36
METHODS = {
    "chance": "Clopper-Pearson for a number of episodes that was fixed in advance, else a mixture "
    "martingale (Robbins), valid at all times together",
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
        loader=PackageLoader("canary.certification", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(number=_number, percent=percent, count="{:,}".format, json=json.dumps)
    carried = json.dumps(certificate, allow_nan=False)
    for letter in "&<>":  # so that nothing ends the script element
        carried = carried.replace(letter, f"\\u{ord(letter):04x}")
    constraint = constraint_of(certificate)
    return pages.get_template("certificate.html.jinja").render(
        c=certificate,
        text=constraint.text.replace("<=", "\N{LESS-THAN OR EQUAL TO}"),
        parts=[_part(certificate, part) for part in parts_of(constraint)],
        footnote=footnote(certificate["plan"]),
        carried=Markup(carried),
        shifted=any(result["changes"] for result in certificate["results"]),
        changed=certificate["origin"].get("environment_changes", []),
    )


def certificate_in(page: bytes) -> bytes:
    """The JSON text that a page carries; a ValueError if it carries none, or more than one."""
    found = re.findall(
        rb'<script type="application/json" id="certificate">(.*?)</script>', page, re.DOTALL
    )
    if len(found) != 1:
        raise ValueError(f"the page carries {len(found)} certificates")
    return found[0]


def _part(certificate: dict[str, Any], constraint: One) -> dict[str, Any]:
    """What the page says about one constraint."""
    is_chance = isinstance(constraint, Chance)
    results = results_about(certificate, constraint)
    costs = [decode_costs(result["costs"]) for result in results]
    nominal = [one for one, result in zip(costs, results, strict=True) if not result["changes"]]
    widest = 1.15 * max(2 * constraint.allowed, *(result["upper"] for result in results))
    return {
        "constraint": constraint,
        "results": results,
        "names": [policy_name(result["seed"], result["changes"]) for result in results],
        "seen": [constraint.measure(one) if len(one) else None for one in costs],
        "cost_bound": largest_cost(Plan(**certificate["plan"]), constraint),
        "is_chance": is_chance,
        "say": percent if is_chance else number,
        "method": METHODS[constraint.kind],
        "scale": 100 / (min(1.0, widest) if is_chance else widest),  # percent of the width
        "histogram": histogram(np.concatenate(nominal), constraint.limit),
    }


def histogram(costs: np.ndarray, limit: float) -> list[dict[str, Any]]:
    """Bars of equal width, closed on the right. The limit is an edge between two of them, and a
    cost equal to the limit lies below it: C > limit is strict."""
    if not len(costs):
        return []
    width = (max(costs.max(), limit) - min(0.0, costs.min())) / BINS
    if np.all(costs == np.rint(costs)):
        width = max(1.0, math.ceil(width))
    index = np.ceil((costs - limit) / width).astype(int)  # from 1 on: above the limit
    first = min(index.min(), 0)
    counts = np.bincount(index - first, minlength=2 - first)
    return [
        {
            "from": limit + width * (place - 1),
            "to": limit + width * place,
            "count": int(count),
            "height": 100 * count / counts.max(),
            "violates": place > 0,
        }
        for place, count in enumerate(counts, first)
    ]


def _number(value: float | None) -> str:
    return "unavailable" if value is None else number(value)
