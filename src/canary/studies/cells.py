"""Numbers of a row as cells of a table: small probabilities, intervals, margins, final policies; no
JAX.

Final policies are exact in a finite environment. Elsewhere they were seen on fresh episodes, so
their violation probabilities have exact binomial (Clopper-Pearson) 95% intervals: that of P is of
the episodes of all seeds together; that of the largest holds for all seeds jointly (each at 1 -
0.05 / seeds), so it holds for whichever seed is the largest.
"""

from typing import Any

from canary.numerics.binomial import clopper_pearson_interval, clopper_pearson_upper
from canary.reporting.statistics import mean_over_seeds, safe_fraction
from canary.studies.page import shown
from canary.studies.rows import Row

FINAL_COLUMNS = ("final P [95%]", "largest final P [95%]", "final safe", "final J")
ABOUT_FINAL = (
    "Final columns are of the final policies: by dynamic programming in a finite environment, which "
    "needs no interval; elsewhere\n"
    "on fresh episodes, with exact binomial (Clopper-Pearson) 95% intervals, of all seeds' episodes "
    "together for P and jointly\n"
    "over seeds for the largest; `sure` is the share of seeds whose own upper bound (95%, one-sided) "
    "is at most ε."
)
ABOUT_IMPROVEMENT = (
    "P(J above the first's) is the probability that a seed of the row earns more than a seed of "
    "the first, ties by halves, with\n"
    "a bootstrap interval, which is a point where all seeds of one earn more than all of the other."
)


def final_numbers(row: Row) -> dict[str, Any]:
    """What is known of a row's final policies; None where nothing is."""
    final, epsilon = row.final or {}, row.summary["epsilon"]
    violation = [value for value in final.get("violation_per_seed", []) if value is not None]
    whole, largest, sure = _intervals(final, epsilon)
    return {
        "final_is_exact": row.is_exact,
        "final_violation": mean_over_seeds(violation),
        "final_violation_lower": whole[0],
        "final_violation_upper": whole[1],
        "final_largest_violation": max(violation, default=None),
        "final_largest_lower": largest[0],
        "final_largest_upper": largest[1],
        "final_safe": None if epsilon is None else safe_fraction(violation, epsilon),
        "final_sure": sure,
        "final_reward": mean_over_seeds(final.get("return_per_seed", [])),
    }


Pair = tuple[float | None, float | None]


def _intervals(final: dict[str, Any], epsilon: float | None) -> tuple[Pair, Pair, float | None]:
    """Of all episodes together, of the largest seed, and the share of seeds below epsilon for sure;
    None if exact."""
    columns = final.get("violations_per_seed", []), final.get("episodes_per_seed", [])
    counts = [(int(k), int(n)) for k, n in zip(*columns, strict=True) if k is not None and n]
    if not counts:
        return (None, None), (None, None), None
    violations, episodes = (sum(column) for column in zip(*counts, strict=True))
    lower, upper = clopper_pearson_interval(violations, episodes)
    each = [clopper_pearson_interval(k, n, 1 - 0.05 / len(counts)) for k, n in counts]
    largest = max(float(low) for low, _ in each), max(float(high) for _, high in each)
    bounds = [float(clopper_pearson_upper(k, n, 0.95)) for k, n in counts]
    sure = None if epsilon is None else safe_fraction(bounds, epsilon)
    return (float(lower), float(upper)), largest, sure


def final_cells(numbers: dict[str, Any], digits: str = ".3f") -> tuple[str, str, str, str]:
    """The cells of FINAL_COLUMNS."""
    safe = shown(numbers["final_safe"], ".0%")
    sure = numbers["final_sure"]
    return (
        with_interval(numbers, "final_violation", "final_violation"),
        with_interval(numbers, "final_largest_violation", "final_largest"),
        safe if sure is None else f"{safe} ({sure:.0%} sure)",
        shown(numbers["final_reward"], digits),
    )


def probability(value: float | None, beside: float | None = None) -> str:
    """Four digits behind the point, and a power of ten if that, or what it stands beside, is rarer;
    0 is exactly 0."""
    if value is None or value == 0:
        return "-" if value is None else "0"
    if abs(beside or value) >= 5e-4:
        return f"{value:.4f}"
    return f"{value:.1e}".replace("e-0", "e-")


def with_error(value: float | None, error: float | None) -> str:
    """A probability with its standard error."""
    return "-" if value is None else f"{probability(value)} ± {probability(error, value)}"


def with_interval(numbers: dict[str, Any], name: str, ends: str, form: str | None = None) -> str:
    """A number with its interval where it has one; a probability if there is no other form."""

    def text(value: float | None) -> str:
        return probability(value) if form is None else shown(value, form)

    lower, upper = numbers[f"{ends}_lower"], numbers[f"{ends}_upper"]
    interval = "" if lower is None else f" [{text(lower)}, {text(upper)}]"
    return text(numbers[name]) + interval


def margin_cell(numbers: dict[str, Any]) -> str:
    """(epsilon - P) / jitter, or why there is none."""
    if numbers["jitter"] == 0:
        return "- (jitter 0)"
    return shown(numbers["margin_per_jitter"], ".1f")
