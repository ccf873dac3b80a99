"""The search for the best certified policy on the terminal: the ranking, what was tried, and what came out."""

from typing import Any

from rich.console import Console
from rich.text import Text

from canary.terminal.formatting import number, table

SHOWN = 10


def print_best(console: Console, best: dict[str, Any]) -> None:
    lines = table("seed", "step", "return", "constraint", "certificate")
    for one in best["candidates"][:SHOWN]:
        lines.add_row(
            str(one["seed"]),
            f"{one['step']:,}",
            number(one["return_mean"]),
            f"{one['constraint_value']:.4g}",
            one["verdict"] or "",
        )
    console.print(Text("stored policies, the richest first", "bold"), lines, sep="\n")
    if len(best["candidates"]) > SHOWN:
        console.print(Text(f"and {len(best['candidates']) - SHOWN} more", "dim"))
    console.print(Text(best["sentence"], "green" if best["certified"] else "yellow"), soft_wrap=True)
