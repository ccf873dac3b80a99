"""Certificates on a terminal: a bar while episodes are played, then the verdict and a row per
policy."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from canary.certification.certificate import constraint_of, policy_name, results_about
from canary.certification.certify import Progress as Report
from canary.certification.plan import Plan
from canary.constraints import Chance, Constraint, Mean, One, parts_of
from canary.terminal.console import counting_bar, error_console
from canary.terminal.formatting import Line, digits, number, span, table, title

STYLES = {"SATISFIED": "bold green", "VIOLATED": "bold red", "UNDECIDED": "bold yellow"}


class CertificationBar(ExitStack):
    """One bar over all policies, on standard error."""

    def __init__(self, constraint: Constraint, plan: Plan, *, quiet: bool = False):
        super().__init__()
        self._quiet, self._each, self._begun = quiet, plan.episodes or 1, 0
        self._total = self._each * plan.statements // len(parts_of(constraint))
        self._show = self.enter_context(counting_bar(f"certifying {constraint.text}", quiet=quiet))

    def message(self, text: str) -> None:
        if not self._quiet:
            error_console().say((text, "yellow"))

    def start(self, seed: int, changes: dict[str, int | float]) -> Report:
        """The callback for the next policy."""
        before, name = self._begun * self._each, policy_name(seed, changes)
        self._begun += 1

        def report(episodes: int, violations: int | None) -> None:
            found = "" if violations is None else f", {violations:,} violations"
            self._show(before + episodes, self._total, f"{name}: {episodes:,} episodes{found}")

        return report


def print_certificate(
    console: Console, certificate: dict[str, Any], paths: tuple[Path, ...] | list[Path] = ()
) -> None:
    """The verdict, a row per policy and changed setting, and the files written."""
    constraint = constraint_of(certificate)
    verdict = (f" {certificate['verdict']} ", f"{STYLES[certificate['verdict']]} reverse")
    is_changed = bool(certificate["origin"].get("environment_changes"))
    beside_it = " in an environment that changed since training" if is_changed else ""
    console.print(Text.assemble(verdict, (beside_it, "bold yellow")))
    console.print(Text(certificate["sentence"]), soft_wrap=True)
    for part in parts_of(constraint):
        console.print(table([_line(result, part) for result in results_about(certificate, part)]))
    check = certificate["environment_check"]
    if not check["compared"]:
        console.print(Text(f"The environment: {check['sentence']}", "yellow"), soft_wrap=True)
    console.print(Text(footnote(certificate["plan"]), style="dim"), soft_wrap=True)
    for path in paths:
        console.print(Text(str(path)), soft_wrap=True)


def _line(result: dict[str, Any], constraint: One) -> Line:
    """The cells of one result. VaR, CVaR and mean are bounded beside what is judged."""
    is_chance, has_tail = isinstance(constraint, Chance), not isinstance(constraint, Mean)
    tail, decimals = result["conditional_value_at_risk_upper"], digits(constraint.allowed)
    return {
        "policy": policy_name(result["seed"], result["changes"]),
        "verdict": Text(result["verdict"], STYLES[result["verdict"]]),
        # An episode above the limit of another constraint violates nothing
        "violations": f"{result['violations']:,}" if is_chance else None,
        "episodes": f"{result['episodes']:,}",
        constraint.label: span(result["lower"], result["upper"], decimals if is_chance else None),
        "VaR": span(*result["value_at_risk"]) if has_tail else None,
        "CVaR": f"<= {number(tail)}" if is_chance else None,
        "mean cost": f"<= {number(result['mean_upper'])}" if has_tail else None,
        "return": number(result["return_mean"]),
    }


LEVELS = {
    "nothing": "shows nothing",
    "consistent": "follows from the costs that it lists; --replay plays its episodes again",
    "replayed": "was replayed: its episodes, played again, had the same costs",
}


def print_verification(console: Console, result: dict[str, Any]) -> None:
    word, style = ("VALID", "bold green") if result["valid"] else ("NOT VALID", "bold red")
    about = f" {result['path']} {LEVELS[result['level']]}"
    console.print(Text.assemble((f" {word} ", f"{style} reverse"), about), soft_wrap=True)
    if result["valid"]:
        console.print(Text(f"{result['verdict']}: {result['sentence']}"), soft_wrap=True)
    if result["signed_by"]:
        console.print(Text(f"Signed by {result['signed_by']}", "green"), soft_wrap=True)
    for problem in result["problems"]:
        console.print(Text(problem, "red"), soft_wrap=True)


def footnote(plan: dict[str, Any]) -> str:
    """What the bounds of a table mean."""
    level = f"{100 * plan['confidence']:g}%"
    if plan["statements"] == 1:
        return f"Every bound holds with {level} confidence."
    return (
        f"Bounds of one kind hold with {level} confidence for all {plan['statements']} rows "
        "together (Bonferroni), so you may pick any row."
    )


SHOWN = 10


def print_best(console: Console, best: dict[str, Any]) -> None:
    candidates = best["candidates"]
    lines: list[Line] = [
        {
            "seed": str(one["seed"]),
            "step": f"{one['step']:,}",
            "return": number(one["return_mean"]),
            "constraint": f"{one['constraint_value']:.4g}",
            "within it": "yes" if one["keeps"] else "no",
            "certificate": one["verdict"],
        }
        for one in candidates[:SHOWN]
    ]
    any_keeps = any(one["keeps"] for one in candidates)
    order = "highest return within the constraint first" if any_keeps else "the safest first"
    console.print(title(f"stored policies, {order}"), table(lines), sep="\n")
    if len(candidates) > SHOWN:
        console.print(Text(f"and {len(candidates) - SHOWN} more", "dim"))
    style = "green" if best["certified"] else "yellow"
    console.print(Text(best["sentence"], style), soft_wrap=True)
