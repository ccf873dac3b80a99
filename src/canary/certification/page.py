"""A certificate as one self-contained HTML page."""

import json
from typing import Any

from canary.certification.certificate import (
    constraint_of,
    decode_costs,
    percent,
    policy_name,
    results_about,
)
from canary.certification.plan import Plan, largest_cost
from canary.constraints import Chance, One, parts_of
from canary.terminal.certificate_table import footnote
from canary.terminal.formatting import number

METHODS = {
    "chance": "Clopper-Pearson for a number of episodes that was fixed in advance, else a mixture "
    "martingale (Robbins), valid at all times together",
    "mean": "betting on each episode by those before it (Waudby-Smith and Ramdas), valid at all "
    "times together",
    "cvar": "the integrated survival function (Anderson), Clopper-Pearson at geometrically spaced "
    "order statistics; look j of an anytime test at level alpha / (j (j + 1))",
}


def render_page(certificate: dict[str, Any]) -> str:
    """The page as text; all content of the certificate is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("canary.certification", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters.update(number=number, percent=percent, count="{:,}".format, json=json.dumps)
    constraint = constraint_of(certificate)
    return pages.get_template("certificate.html.jinja").render(
        c=certificate,
        text=constraint.text.replace("<=", "\N{LESS-THAN OR EQUAL TO}"),
        parts=[_part(certificate, part) for part in parts_of(constraint)],
        footnote=footnote(certificate["plan"]),
        shifted=any(result["changes"] for result in certificate["results"]),
        changed=certificate["origin"].get("environment_changes", []),
    )


def _part(certificate: dict[str, Any], constraint: One) -> dict[str, Any]:
    """The data of the page about one constraint."""
    is_chance, results = isinstance(constraint, Chance), results_about(certificate, constraint)
    widest = 1.15 * max(2 * constraint.allowed, *(result["upper"] for result in results))
    rows = [
        {
            "name": policy_name(result["seed"], result["changes"]),
            "seen": constraint.measure(decode_costs(result["costs"])) if result["costs"] else None,
            **result,
        }
        for result in results
    ]
    return {
        "constraint": constraint,
        "rows": rows,
        "cost_bound": largest_cost(Plan(**certificate["plan"]), constraint),
        "is_chance": is_chance,
        "say": percent if is_chance else number,
        "method": METHODS[constraint.kind],
        "scale": 100 / (min(1.0, widest) if is_chance else widest),  # percent of the width
    }
