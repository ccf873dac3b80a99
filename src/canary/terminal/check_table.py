"""What `canary check-env` found, on the terminal."""

from typing import Any

from canary.terminal.console import PlainConsole

COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def print_check(console: PlainConsole, report: dict[str, Any]) -> None:
    """The environment, what is wrong or odd about it, its random episodes, and advice about the
    limit."""
    if "horizon" in report:
        size, actions, horizon = (
            report[name] for name in ("observation_size", "actions", "horizon")
        )
        about = f": observation of size {size}, actions: {actions}, episodes have up to {horizon:,} steps"
        console.say((report["env"], "bold"), about)
    levels = [finding["level"] for finding in report["findings"]]
    for finding, level in zip(report["findings"], levels, strict=True):
        console.say((f"{level:<8}", COLOURS[level]), f" {finding['text']}")
    if episodes := report["episodes"]:
        cost = episodes["cost"]
        quantiles = (
            f"{float(share):.0%} {value:.4g}" for share, value in cost["quantiles"].items()
        )
        console.say(
            f"{cost['episodes']} random episodes: return {episodes['return_mean']:.4g}, length "
            f"{episodes['length_mean']:.4g}, {episodes['terminated_share']:.0%} end by themselves"
        )
        console.say(f"episode cost: mean {cost['mean']:.4g}, deviation {cost['deviation']:.4g}")
        console.say(f"  quantiles   {'   '.join(quantiles)}")
    if report["advice"]:
        console.say(report["advice"]["text"])
    warnings = levels.count("warning")
    if not report["ok"]:
        console.say(("it cannot be trained on as it is", "red"))
    elif warnings:
        console.say(
            (f"it can be trained on; {warnings} warning{'s' if warnings > 1 else ''}", "yellow")
        )
    else:
        console.say(("nothing is wrong", "green"))
