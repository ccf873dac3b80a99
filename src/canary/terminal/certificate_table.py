"""Certificates on a terminal: the verdict and a row per policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from canary.certification.certificate import constraint_of, policy_name, results_about
from canary.constraints import Chance, Mean, One, parts_of
from canary.terminal.console import PlainConsole
from canary.terminal.formatting import Line, digits, number, span, table, title

STYLES = {"SATISFIED": "bold green", "VIOLATED": "bold red", "UNDECIDED": "bold yellow"}


def print_certificate(
    console: Console, certificate: dict[str, Any], paths: Sequence[Path] = ()
) -> None:
    """The verdict, a row per policy and changed setting, and the files written."""
    verdict = (f" {certificate['verdict']} ", f"{STYLES[certificate['verdict']]} reverse")
    is_changed = bool(certificate["origin"].get("environment_changes"))
    beside_it = " in an environment that changed since training" if is_changed else ""
    console.print(Text.assemble(verdict, (beside_it, "bold yellow")))
    console.print(Text(certificate["sentence"]), soft_wrap=True)
    for part in parts_of(constraint_of(certificate)):
        lines = [_certified_line(result, part) for result in results_about(certificate, part)]
        console.print(table(lines))
    console.print(Text(footnote(certificate["plan"]), style="dim"), soft_wrap=True)
    for path in paths:
        console.print(Text(str(path)), soft_wrap=True)


def _certified_line(result: dict[str, Any], constraint: One) -> Line:
    """The line of a policy: the judged quantity, and bounds on VaR, CVaR and mean."""
    is_chance, has_tail = isinstance(constraint, Chance), not isinstance(constraint, Mean)
    tail, places = result["conditional_value_at_risk_upper"], digits(constraint.allowed)
    return {
        "policy": policy_name(result["seed"], result["changes"]),
        "verdict": Text(result["verdict"], STYLES[result["verdict"]]),
        # Only a chance constraint counts violations
        "violations": f"{result['violations']:,}" if is_chance else None,
        "episodes": f"{result['episodes']:,}",
        constraint.label: span(result["lower"], result["upper"], places if is_chance else None),
        "VaR": span(*result["value_at_risk"]) if has_tail else None,
        "CVaR": f"<= {number(tail)}" if is_chance else None,
        "mean cost": f"<= {number(result['mean_upper'])}" if has_tail else None,
        "return": number(result["return_mean"]),
    }


def footnote(plan: dict[str, Any]) -> str:
    """The meaning of a certificate's bounds."""
    level = f"{100 * plan['confidence']:g}%"
    if plan["statements"] == 1:
        return f"Every bound holds with {level} confidence."
    return (
        f"Bounds of one kind hold with {level} confidence for all {plan['statements']} rows "
        "together (Bonferroni), so you may pick any row."
    )


LEVELS = {
    "nothing": "shows nothing",
    "consistent": "follows from the costs that it lists; with RUN its episodes are played again",
    "replayed": "was replayed: its episodes, played again, had the same costs",
}


def print_verification(console: PlainConsole, result: dict[str, Any]) -> None:
    word, style = ("VALID", "bold green") if result["valid"] else ("NOT VALID", "bold red")
    console.say((f" {word} ", f"{style} reverse"), f" {result['path']} {LEVELS[result['level']]}")
    if result["valid"]:
        console.say(f"{result['verdict']}: {result['sentence']}")
    if result["signed_by"]:
        console.say((f"Signed by {result['signed_by']}", "green"))
    for problem in result["problems"]:
        console.say((problem, "red"))


MOST_CANDIDATES = 10


def print_best(console: PlainConsole, best: dict[str, Any]) -> None:
    lines: list[Line] = [
        {
            "seed": str(one["seed"]),
            "step": f"{one['step']:,}",
            "return": number(one["return_mean"]),
            "constraint": f"{one['constraint_value']:.4g}",
            "within it": "yes" if one["keeps"] else "no",
            "certificate": one["verdict"],
        }
        for one in best["candidates"]
    ]
    about = "within the constraint by return, then the safest"
    console.print(title("stored policies", about), table(lines[:MOST_CANDIDATES]), sep="\n")
    if (more := len(lines) - MOST_CANDIDATES) > 0:
        console.say((f"and {more} more", "dim"))
    console.say((best["sentence"], "green" if best["certified"] else "yellow"))
