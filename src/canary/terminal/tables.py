"""The tables that commands print: summary, comparison, runs, settings, check and frontier."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from canary.errors import CanaryError
from canary.runs.files import read_sealed
from canary.runs.settings import settings_text
from canary.terminal.console import PlainConsole
from canary.terminal.formatting import Cell, chance, judged, number, span, table, title

if TYPE_CHECKING:
    from canary.constraints import Constraint, One


def print_summary(console: Console, summary: dict[str, Any]) -> None:
    """The end of a run or of an evaluation: a row per seed, one for all, and where files are. After
    training the frozen policies follow, if they were checked.

    Takes the JSON summary; a `note` and `paths` (label to path) may be added to it. It fits into 80
    columns.
    """
    console.print(title(f"{summary['algorithm']} on {summary['env']}", summary["constraint_text"]))
    _print_seeds(console, summary)
    console.print(Text(summary.get("note", "")))
    if check := summary.get("final_check"):
        count = f"{max(check['episodes_per_seed']):,} fresh episodes per seed"
        console.print("", title("the final policies", count), sep="\n")
        _print_seeds(console, check)
    remarks = [f"seed {seed} is {text}." for seed, text in summary.get("warnings", {}).items()]
    if known := summary.get("yardstick"):
        remarks.append(f"Without learning: {known}.")
    for remark in remarks:
        console.print(Text(remark, style="yellow"), soft_wrap=True)
    for label, path in summary.get("paths", {}).items():
        console.print(Text.assemble((f"{label:<12}", "dim"), str(path)), soft_wrap=True)


def _print_seeds(console: Console, summary: dict[str, Any]) -> None:
    """A table of the seeds under each constraint."""
    for part in summary.get("constraints", [{}]):
        console.print(_seed_table(summary | part))


def _seed_table(summary: dict[str, Any]) -> Table:
    """Columns of which no number is known are left out."""

    def both(each: str, whole: str) -> list[Any]:
        return [*summary.get(each, ()), summary.get(whole)]

    def column(each: str, whole: str) -> list[str]:
        values = both(f"{each}_per_seed", whole)
        return [number(value) for value in values] if any(v is not None for v in values) else []

    kind, allowed = summary["constraint"]["kind"], summary["constraint_allowed"]
    measured = both("constraint_per_seed", "constraint_value")
    intervals = both("constraint_interval_per_seed", "constraint_interval")
    pairs = zip(measured, intervals, strict=True)
    values, bands = zip(*(judged(*pair, kind, allowed) for pair in pairs), strict=True)
    means, deviations = column("cost", "cost_mean"), column("cost_deviation", "cost_deviation")
    safe = ["-" if one is None else "yes" if one <= allowed else "no" for one in measured[:-1]]
    has_jitter = kind == "chance" and summary["violation_jitter"] is not None
    columns: dict[str, Sequence[Cell]] = {
        "seed": [*map(str, summary["seed_ids"]), "all"],
        "return": column("return", "return_mean"),
        "cost": [f"{mean} ± {one}" for mean, one in zip(means, deviations, strict=True)],
        "length": [] if has_jitter else column("length", "length_mean"),
        summary["constraint_label"]: values,
        "whole P": column("violation_whole", "violation_probability_whole") if has_jitter else [],
        "95% interval": bands,
        "jitter": column("jitter", "violation_jitter") if has_jitter else [],
        "safe": [*safe, f"{safe.count('yes')} of {len(safe) - safe.count('-')}"],
    }
    shown = {name: cells for name, cells in columns.items() if cells}
    *seeds, whole = zip(*shown.values(), strict=True)
    lines = table(*shown, rows=seeds)
    lines.add_section()
    lines.add_row(*whole, style="bold")
    return lines


def print_comparison(console: Console, comparison: dict[str, Any]) -> None:
    lines = table("run", "return", "against first", "constraint", "safe", left=1)
    for run in comparison["runs"]:
        differs, paired = settings_text(run["differs"]), run["return_against_first"]
        lines.add_row(
            f"{run['run']}\n{differs}" if differs else run["run"],
            _estimate(run["return_mean"]),
            f"{paired['difference']:+.3g} ± {paired['half_width']:.2g}" if paired else "-",
            _estimate(run["constraint_value"]),
            f"{run['safe_seeds']} of {run['seeds']}",
        )
    console.print(title(f"runs on {comparison['env']}"), lines, sep="\n")
    texts = dict.fromkeys(run["constraint_text"] for run in comparison["runs"])
    note = "Second half of training; 95% intervals over seeds; against first: on shared seeds."
    console.print(Text(f"constraint  {'; '.join(texts)}\n{note}"), soft_wrap=True)


def _estimate(estimate: dict[str, Any] | None) -> str:
    if estimate is None:
        return "-"
    lower, upper = estimate["lower"], estimate["upper"]
    return number(estimate["mean"]) + ("" if lower is None else f" ({span(lower, upper)})")


LISTED = ("path", "status", "started", "steps", "env", "algorithm", "seeds", "total_steps", "tags")
NUMBERS = ("return_mean", "violation_probability", "constraint_value", "limit", "epsilon")


def run_record(run: dict[str, Any], differs: dict[str, Any]) -> dict[str, Any]:
    """A run of `canary list` as JSON data: how it differs from the others, and the main numbers of
    its summary if it has one."""
    try:
        summary = read_sealed(Path(run["path"]) / "summary.json")
    except CanaryError:
        summary = {}
    return {
        **{name: run[name] for name in LISTED if name in run},
        "differs": differs,
        **{name: summary.get(name) for name in ("constraint_label", *NUMBERS)},
    }


def print_lists(
    console: Console, root: str, runs: list[dict[str, Any]], known: dict[str, dict[str, str]]
) -> None:
    heading = Text.assemble(("runs", "bold"), f" in {root}")
    if runs:
        names = ("run", "seeds", "steps", "status", "return", "constraint")
        console.print(heading, table(*names, rows=map(_run_cells, runs), left=1), sep="\n")
    else:
        console.print(heading.append(": none yet; start one with `canary train`.\n"))
    for name, entries in known.items():
        console.print(title(name))
        for entry, text in entries.items():
            console.print(Text.assemble(f"  {entry:<14} ", (text, "dim")))
        console.print()


def _run_cells(run: dict[str, Any]) -> list[str]:
    name = Path(run["path"]).name
    if "env" not in run:
        return [name, "-", "-", run["status"], "-", "-"]
    planned, done = run["total_steps"], run["steps"]
    about = " ".join([settings_text(run["differs"]), *(f"#{tag}" for tag in run["tags"])]).strip()
    value, label = run["constraint_value"], run["constraint_label"]
    return [
        f"{name}\n  {about}" if about else name,
        str(run["seeds"]),
        f"{done:,}" if done == planned else f"{done:,} of {planned:,}",
        run["status"],
        number(run["return_mean"]),
        "-" if value is None else f"{label} {number(value)}",
    ]


def print_settings(console: Console, rows: list[dict[str, str]]) -> None:
    """Settings with default, range and meaning."""
    cells = ([row[name] for name in ("setting", "default", "range", "about")] for row in rows)
    lines = table("setting", "default", "range", "meaning", left=4, rows=cells)
    lines.columns[0].no_wrap = True
    console.print(lines)
    console.print(Text("Defaults are the paper's; the preset and --set start from there.", "dim"))


COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def print_check(
    console: PlainConsole, report: dict[str, Any], constraint: "Constraint | None"
) -> None:
    """The result of `canary check-env`."""
    if "horizon" in report:
        about = (
            f": observation of size {report['observation_size']}, actions: {report['actions']}, "
            f"episodes have up to {report['horizon']:,} steps"
        )
        console.say((report["env"], "bold"), about)
    for finding in report["findings"]:
        level = finding["level"]
        console.say((f"{level:<8}", COLOURS[level]), f" {finding['text']}")
    if report["episodes"]:
        _print_episodes(console, report, constraint)
    if report["advice"]:
        console.say(report["advice"]["text"])
    warnings = sum(finding["level"] == "warning" for finding in report["findings"])
    if not report["ok"]:
        console.say(("it cannot be trained on as it is", "red"))
    elif warnings:
        plural = "s" if warnings > 1 else ""
        console.say((f"it can be trained on; {warnings} warning{plural}", "yellow"))
    else:
        console.say(("nothing is wrong", "green"))


def _print_episodes(
    console: PlainConsole, report: dict[str, Any], constraint: "Constraint | None"
) -> None:
    """Random episodes, and for each cost what can be had without learning."""
    from canary.constraints import parts_of  # it needs numpy, and `canary list` does not

    episodes = report["episodes"]
    costs = episodes["costs"] if "costs" in episodes else [episodes["cost"]]
    console.say(
        f"{costs[0]['episodes']} random episodes: return {episodes['return_mean']:.4g}, length "
        f"{episodes['length_mean']:.4g}, {episodes['terminated_share']:.0%} end by themselves"
    )
    for index, cost in enumerate(costs):
        which = f"cost {index + 1}" if len(costs) > 1 else "cost"
        quantiles = (f"{float(share):.0%} {each:.4g}" for share, each in cost["quantiles"].items())
        console.say(
            f"episode {which}: mean {cost['mean']:.4g}, deviation {cost['deviation']:.4g}\n"
            f"  quantiles   {'   '.join(quantiles)}"
        )
        own = None if constraint is None else parts_of(constraint)[index]
        console.print(_yardstick([one["costs"][index] | one for one in report["yardstick"]], own))


def _yardstick(policies: list[dict[str, Any]], constraint: "One | None") -> Table:
    """A row per policy that does not learn."""
    measured = () if constraint is None else (constraint.label, "95% interval")
    lines = table("policy", "episodes", "return", "cost", "meets limits from", *measured, left=1)
    for one in policies:
        cells: list[Cell] = [one["policy"], str(one["episodes"])]
        cells += [number(one[name]) for name in ("return_mean", "cost_mean", "least_limit")]
        if constraint is not None:
            found = one["constraint_value"], one["constraint_interval"]
            cells += judged(*found, constraint.kind, constraint.allowed)
        lines.add_row(*cells)
    return lines


LABELS = {"var": "VaR", "cvar": "CVaR", "cantelli": "Cantelli"}


def print_frontier(console: Console, report: dict[str, Any]) -> None:
    """The optima at the asked epsilon, the frontier over epsilon, and the trained policies."""
    about = f"limit {report['limit']:g}, every number exact"
    console.print(title(f"best returns on {report['env']}", about))
    console.print(_optima_table(report), _epsilon_table(report), sep="\n")
    if report["runs"]:
        heading = title("trained policies", "gap: best return - return")
        console.print(heading, _runs_table(report), sep="\n")


def _optima_table(report: dict[str, Any]) -> Table:
    """Also those of Cantelli's bound on the cost shaped with each dead zone."""
    free, epsilon = report["unconstrained_return"], report["epsilon"]
    names = ("constraint", "best return", "price", "P(C > limit)", "mean cost", "deviation")
    lines = table(*names, left=1, title=f"at epsilon {epsilon:g}")
    lines.add_row("none", number(free, 4), "-")
    optima = [(label, report["optima"][name]) for name, label in LABELS.items()]
    shaped = [(f"shaped, d = {best['dead_zone']:g}", best) for best in report["shaped"]]
    for label, best in (*optima, *shaped):
        if best["return"] is None:
            lines.add_row(label, "no policy")
            continue
        lines.add_row(
            label,
            number(best["return"], 4),
            number(free - best["return"], 4),
            chance(best["violation_probability"], epsilon),
            number(best["cost_mean"]),
            number(best["cost_deviation"]),
        )
    return lines


def _epsilon_table(report: dict[str, Any]) -> Table:
    best: dict[float, dict[str, float | None]] = {}
    for point in report["frontier"]:
        best.setdefault(point["epsilon"], {})[point["constraint"]] = point["return"]
    lines = table("epsilon", *LABELS.values(), title="best return over epsilon")
    for epsilon, returns in sorted(best.items()):
        style = "bold" if epsilon == report["epsilon"] else None
        lines.add_row(f"{epsilon:g}", *(number(returns[name], 4) for name in LABELS), style=style)
    return lines


def _runs_table(report: dict[str, Any]) -> Table:
    """One line per seed, and the mean over several seeds."""
    gaps = {f"{label} gap": f"gap_to_{name}" for name, label in LABELS.items()}
    gaps["gap at own P"] = "gap_at_own_violation"
    lines = table("run", "seed", "return", "P(C > limit)", "mean cost", *gaps, left=1)
    for run in report["runs"]:
        rows = [row | {"seed": str(row["seed"])} for row in run["seeds"]]
        if len(rows) > 1:
            keys = [key for key in rows[0] if all(isinstance(row[key], float) for row in rows)]
            means = {key: fmean(row[key] for row in rows) for key in keys}
            rows.append(rows[0] | means | {"seed": "mean"})
        for row in rows:
            violation = row["violation_probability"]
            is_safe = violation <= report["epsilon"]
            lines.add_row(
                Path(run["run_dir"]).name,
                row["seed"],
                number(row["return"], 4),
                Text(chance(violation, report["epsilon"]), "green" if is_safe else "red"),
                number(row["cost_mean"]),
                *(number(row[key], 4) for key in gaps.values()),
                style="bold" if row["seed"] == "mean" else None,
            )
    return lines
