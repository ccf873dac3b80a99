"""A certificate as one self-contained HTML page: verdict, numbers, two drawings, what was checked
and how to check it.
"""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from canary.certification.certificate import constraint_of
from canary.certification.plan import POWER
from canary.certification.sample_size import clean_episodes, planned_episodes
from canary.certification.sentences import percent
from canary.constraints import Chance, Constraint, Mean
from canary.terminal.certificate_table import footnote
from canary.terminal.console import printable
from canary.terminal.formatting import number

BINS = 36
WIDTH, PLOT_LEFT, PLOT_RIGHT = 760, 200, 735
ROW, TOP = 26, 26
HEIGHT, FLOOR = 200, 165  # of the histogram


@dataclass(frozen=True)
class IntervalRow:
    """One line of the drawing of bounds, in pixels."""

    label: str
    verdict: str
    lower: float
    rate: float | None
    upper: float
    y: float


@dataclass(frozen=True)
class Bar:
    """One bar of the histogram, in pixels."""

    x: float
    width: float
    y: float
    height: float
    violates: bool
    count: int


def render_page(certificate: dict[str, Any]) -> str:
    """The page as text; everything that comes from the certificate is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("canary.certification", "")
    pages = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        finalize=_seen,
    )  # fmt: skip
    pages.filters.update(
        percent=_percent, number=_number, count=lambda value: f"{value:,}", json=_compact
    )
    constraint = constraint_of(certificate)
    return pages.get_template("certificate.html.jinja").render(
        c=certificate,
        **judged(constraint),
        intervals=intervals(certificate, constraint),
        histogram=histogram(certificate),
        plans=plans(certificate) if isinstance(constraint, Chance) else [],
        footnote=footnote(certificate["plan"]),
        carried=Markup(_carried(certificate)),
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


def _carried(certificate: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(certificate, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def judged(constraint: Constraint) -> dict[str, Any]:
    """What the constraint limits: its name, its short sign, how its numbers are written, and the
    whole."""
    if isinstance(constraint, Chance):
        text = (
            f"P(C > {constraint.limit:g}) \N{LESS-THAN OR EQUAL TO} {percent(constraint.epsilon)}"
        )
        return {
            "text": text,
            "what": "violation probability",
            "sign": "P",
            "say": _percent,
            "allowed": constraint.allowed,
        }
    is_mean = isinstance(constraint, Mean)
    what = (
        "mean cost"
        if is_mean
        else f"mean cost of the worst {percent(constraint.share)} of episodes"
    )
    text = constraint.text.replace("<=", "\N{LESS-THAN OR EQUAL TO}")
    sign = "mean" if is_mean else "CVaR"
    return {"text": text, "what": what, "sign": sign, "say": _number, "allowed": constraint.allowed}


def seen(constraint: Constraint, result: dict[str, Any]) -> float | None:
    """What was measured of that which the constraint limits."""
    one, costs = result["assessment"], result["evidence"]["costs"]
    if isinstance(constraint, Chance) or not costs:
        return one["rate"]
    values, counts = zip(*costs, strict=True)
    return constraint.measure(np.repeat(values, counts))


def intervals(certificate: dict[str, Any], constraint: Constraint) -> dict[str, Any]:
    """Bounds of every row, with what is allowed, on a common scale from 0."""
    allowed = constraint.allowed
    assessments = [result["assessment"] for result in certificate["results"]]
    most = 1.0 if isinstance(constraint, Chance) else math.inf
    largest = min(most, 1.15 * max(2 * allowed, *(one["upper"] for one in assessments)))
    scale = (PLOT_RIGHT - PLOT_LEFT) / largest
    dots = [seen(constraint, result) for result in certificate["results"]]
    rows = [
        IntervalRow(
            _label(result),
            one["verdict"],
            PLOT_LEFT + scale * one["lower"],
            None if dot is None else PLOT_LEFT + scale * dot,
            PLOT_LEFT + scale * one["upper"],
            TOP + ROW * (index + 0.5),
        )
        for index, (result, one, dot) in enumerate(
            zip(certificate["results"], assessments, dots, strict=True)
        )
    ]
    bottom = TOP + ROW * len(rows)
    say = judged(constraint)["say"]
    ticks = [(PLOT_LEFT + scale * value, say(value)) for value in _ticks(largest)]
    geometry = {
        "width": WIDTH,
        "height": bottom + 28,
        "top": TOP,
        "bottom": bottom,
        "left": PLOT_LEFT,
        "right": PLOT_RIGHT,
    }
    return geometry | {"rows": rows, "allowed": PLOT_LEFT + scale * allowed, "ticks": ticks}


def histogram(certificate: dict[str, Any]) -> dict[str, Any] | None:
    """Episode costs of all policies in the unchanged environment; the limit is an edge between two
    bars."""
    pairs = [p for r in certificate["results"] if not r["changes"] for p in r["evidence"]["costs"]]
    if not pairs:
        return None
    values, counts = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    limit = certificate["limit"]
    low, high = min(0.0, values.min()), max(values.max(), limit)
    width = (high - low) / BINS or 1.0
    if np.all(values == np.rint(values)):
        width = max(1.0, np.ceil(width))
    index = np.where(
        values > limit, np.floor((values - limit) / width), -np.ceil((limit - values) / width)
    ).astype(int)
    # At the limit itself there is no violation: C > limit is strict.
    index = np.where(values == limit, -1, index)
    first, last = min(index.min(), -1), max(index.max(), 0)
    heights = np.bincount(index - first, counts, last - first + 1)
    scale, tall = (PLOT_RIGHT - 40) / len(heights), (FLOOR - 15) / heights.max()
    bars = [
        Bar(
            40 + scale * j,
            max(scale - 1, 1),
            FLOOR - tall * height,
            tall * height,
            j + first >= 0,
            int(height),
        )
        for j, height in enumerate(heights)
        if height
    ]
    edge = 40 - scale * first

    def position(value: float) -> float:
        return edge + scale * (value - limit) / width

    spread = limit + width * np.array([first, last + 1])
    ticks = [(position(t), f"{t:g}") for t in _ticks(spread[1]) if spread[0] <= t]
    episodes = int(counts.sum())
    geometry = {"width": WIDTH, "height": HEIGHT, "floor": FLOOR, "left": 40, "right": PLOT_RIGHT}
    return geometry | {"bars": bars, "limit": edge, "ticks": ticks, "episodes": episodes}


def plans(certificate: dict[str, Any]) -> list[tuple[str, str]]:
    """How many episodes a fixed plan would need, for a few true violation probabilities."""
    epsilon, plan = certificate["epsilon"], certificate["plan"]
    confidence = 1 - (1 - plan["confidence"]) / plan["statements"]
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


def _label(result: dict[str, Any]) -> str:
    changes = ", ".join(f"{name} = {value:g}" for name, value in result["changes"].items())
    return f"seed {result['seed']}" + (f", {changes}" if changes else "")


def _seen(value: Any) -> Any:
    """What a page shows of a text: nothing in a name may turn the direction of the words after it,
    or hide."""
    is_ours = not isinstance(value, str) or hasattr(value, "__html__")
    return value if is_ours else printable(value)


def _percent(value: float | None) -> str:
    return "unknown" if value is None else percent(value)


def _number(value: float | None) -> str:
    return "unavailable" if value is None else number(value)


def _compact(value: Any) -> str:
    return json.dumps(value)
