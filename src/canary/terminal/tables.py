"""The tables that commands print, except certificates (`certificate_table`). No JAX or numpy here."""

from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.text import Text

from canary.errors import CanaryError
from canary.runs.files import read_sealed
from canary.runs.settings import settings_text
from canary.terminal.console import PlainConsole
from canary.terminal.formatting import Cell, Line, Number, chance, judged, number, table, title


def print_summary(console: Console, summary: dict[str, Any]) -> None:
    """Print a summary of a run or an evaluation: a line per seed, a line for all, and paths of
    files. After training, the checked frozen policies follow, if there are any.

    Takes the JSON summary, with an optional `note` and `paths` (label to path). Fits 80 columns.
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


WHOLE = {
    "return": "return_mean",
    "cost": "cost_mean",
    "cost_deviation": "cost_deviation",
    "length": "length_mean",
    "constraint": "constraint_value",
    "constraint_interval": "constraint_interval",
    "violation_whole": "violation_probability_whole",
    "jitter": "violation_jitter",
}  # measures of a seed, and their names over all seeds


def _print_seeds(console: Console, summary: dict[str, Any]) -> None:
    """A table of the seeds under each constraint."""
    for part in summary.get("constraints", [{}]):
        found = summary | part
        lists = {name: found.get(f"{name}_per_seed") for name in WHOLE}
        lines = [
            _seed_line(str(seed), found, {name: each and each[i] for name, each in lists.items()})
            for i, seed in enumerate(summary["seed_ids"])
        ]
        means = {name: found.get(whole) for name, whole in WHOLE.items()}
        safe = [line["safe"] for line in lines if line["safe"] != "-"]
        total = _seed_line("all", found, means) | {"safe": f"{safe.count('yes')} of {len(safe)}"}
        console.print(table(lines, total))


def _seed_line(name: str, summary: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    kind, allowed = summary["constraint"]["kind"], summary["constraint_allowed"]
    of_training = kind == "chance" and summary["violation_jitter"] is not None
    measured = one["constraint"]
    line = {
        "seed": name,
        "return": Number(one["return"]),
        "cost": Number(one["cost"], one["cost_deviation"]),
        "length": None if of_training else Number(one["length"]),
        f"{summary['constraint_label']} [95%]": judged(
            measured, one["constraint_interval"], kind, allowed
        ),
    }
    if of_training:
        line |= {"whole P": Number(one["violation_whole"]), "jitter": Number(one["jitter"])}
    return line | {"safe": "-" if measured is None else "yes" if measured <= allowed else "no"}


def print_comparison(console: Console, comparison: dict[str, Any]) -> None:
    def estimate(one: dict[str, Any] | None) -> Number | None:
        if one is None:
            return None
        ends = one["lower"], one["upper"]
        return Number(one["mean"], interval=None if None in ends else ends)

    lines: list[Line] = []
    for run in comparison["runs"]:
        differs, paired = settings_text(run["differs"]), run["return_against_first"]
        line = {
            "run": f"{run['run']}\n{differs}" if differs else run["run"],
            "return": estimate(run["return_mean"]),
            "against first": paired and Number(paired["difference"], paired["half_width"]),
            "constraint": estimate(run["constraint_value"]),
            "safe": f"{run['safe_seeds']} of {run['seeds']}",
        }
        lines.append(line)
    console.print(title(f"runs on {comparison['env']}"), table(lines, left=1), sep="\n")
    texts = dict.fromkeys(run["constraint_text"] for run in comparison["runs"])
    note = "Second half of training; 95% intervals over seeds; against first: on shared seeds."
    console.print(Text(f"constraint  {'; '.join(texts)}\n{note}"), soft_wrap=True)


LISTED = ("path", "status", "started", "steps", "env", "algorithm", "seeds", "total_steps")
NUMBERS = ("return_mean", "violation_probability", "constraint_value", "limit", "epsilon")


def run_record(run: dict[str, Any], differs: dict[str, Any]) -> dict[str, Any]:
    """A run of `canary list` as JSON data: its different settings, and the main numbers of its
    summary if there is one."""
    try:
        summary = read_sealed(Path(run["path"]) / "summary.json")
    except CanaryError:
        summary = {}
    return {
        **{name: run[name] for name in LISTED if name in run},
        "differs": differs,
        **{name: summary.get(name) for name in ("constraint_label", *NUMBERS)},
    }


def print_lists(console: Console, lists: dict[str, Any], root: str) -> None:
    """The runs below `root`, and all names of environments, algorithms and presets."""
    heading = Text.assemble(("runs", "bold"), f" in {root}")
    if runs := lists["runs"]:
        console.print(heading, table([_run_line(run) for run in runs], left=1), sep="\n")
    else:
        console.print(heading.append(": none yet; start one with `canary train`.\n"))
    for name in [name for name in lists if name != "runs"]:
        console.print(title(name))
        for entry, text in lists[name].items():
            console.print(Text.assemble(f"  {entry:<14} ", (text, "dim")))
        console.print()


def _run_line(run: dict[str, Any]) -> Line:
    name = Path(run["path"]).name
    if "env" not in run:
        return {"run": name, "status": run["status"]}
    planned, done = run["total_steps"], run["steps"]
    about = settings_text(run["differs"])
    value, label = run["constraint_value"], run["constraint_label"]
    return {
        "run": f"{name}\n  {about}" if about else name,
        "seeds": str(run["seeds"]),
        "steps": f"{done:,}" if done == planned else f"{done:,} of {planned:,}",
        "status": run["status"],
        "return": number(run["return_mean"]),
        "constraint": "-" if value is None else f"{label} {number(value)}",
    }


def print_settings(console: Console, found: dict[str, list[dict[str, str]]]) -> None:
    """Settings with default, range and meaning."""
    names = {"setting": "setting", "default": "default", "range": "range", "meaning": "about"}
    lines = [{name: row[key] for name, key in names.items()} for row in found["settings"]]
    made = table(lines, left=4)
    made.columns[0].no_wrap = True
    console.print(made)
    console.print(
        Text("These are the values of the paper; the preset changes some, and --set any.", "dim")
    )


COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


def print_check(console: PlainConsole, report: dict[str, Any]) -> None:
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
    for index, cost in enumerate(report["costs"]):
        lines = [_policy_line(one, cost["constraint"]) for one in cost["policies"]]
        console.print(table(lines, left=1))
        which = f"cost {index + 1}: " if len(report["costs"]) > 1 else ""
        console.say(f"{which}{cost['advice']['text']}")
    warnings = sum(finding["level"] == "warning" for finding in report["findings"])
    if not report["ok"]:
        console.say(("it cannot be trained on as it is", "red"))
    elif warnings:
        plural = "s" if warnings > 1 else ""
        console.say((f"it can be trained on; {warnings} warning{plural}", "yellow"))
    else:
        console.say(("nothing is wrong", "green"))


def _policy_line(one: dict[str, Any], constraint: dict[str, Any] | None) -> Line:
    """The line of a constant or random policy, under a constraint on one cost."""
    line: dict[str, Cell] = {
        "policy": one["policy"],
        "episodes": str(one["episodes"]),
        "return": number(one["return_mean"]),
        "cost": number(one["cost_mean"]),
        "meets limits from": number(one["least_limit"]),
    }
    if constraint is not None:
        line[f"{constraint['label']} [95%]"] = judged(
            one["constraint_value"],
            one["constraint_interval"],
            constraint["kind"],
            constraint["allowed"],
        )
    return line


LABELS = {"var": "VaR", "cvar": "CVaR", "cantelli": "Cantelli"}


def print_frontier(console: Console, report: dict[str, Any]) -> None:
    """The optima at the given epsilon, including those under Cantelli's bound on the shaped cost
    for each dead zone; the frontier over epsilon; the trained policies."""
    free, epsilon = report["unconstrained_return"], report["epsilon"]
    about = f"limit {report['limit']:g}, every number exact"
    console.print(title(f"best returns on {report['env']}", about))
    optima = [(label, report["optima"][name]) for name, label in LABELS.items()]
    optima += [(f"shaped, d = {best['dead_zone']:g}", best) for best in report["shaped"]]
    lines: list[Line] = [{"constraint": "none", "best return": number(free, 4), "price": "-"}]
    for label, best in optima:
        if best["return"] is None:
            lines.append({"constraint": label, "best return": "no policy"})
            continue
        lines.append({
            "constraint": label,
            "best return": number(best["return"], 4),
            "price": number(free - best["return"], 4),
            "P(C > limit)": chance(best["violation_probability"], epsilon),
            "mean cost": number(best["cost_mean"]),
            "deviation": number(best["cost_deviation"]),
        })  # fmt: skip
    console.print(table(lines, left=1, title=f"at epsilon {epsilon:g}"))
    returns: dict[float, dict[str, str]] = {}
    for point in sorted(report["frontier"], key=lambda point: point["epsilon"]):
        line = returns.setdefault(point["epsilon"], {"epsilon": f"{point['epsilon']:g}"})
        line[LABELS[point["constraint"]]] = number(point["return"], 4)
    console.print(table(list(returns.values()), title="best return over epsilon"))
    if report["runs"]:
        console.print(title("trained policies", "gap: best return - return"))
        console.print(table(_policies(report), left=1))


def _policies(report: dict[str, Any]) -> list[Line]:
    """A line per seed, and the mean over several seeds."""
    gaps = {f"{label} gap": f"gap_to_{name}" for name, label in LABELS.items()}
    gaps["gap at own P"] = "gap_at_own_violation"
    lines: list[Line] = []
    for run in report["runs"]:
        rows = [row | {"seed": str(row["seed"])} for row in run["seeds"]]
        if len(rows) > 1:
            keys = [key for key in rows[0] if all(isinstance(row[key], float) for row in rows)]
            rows.append({key: fmean(row[key] for row in rows) for key in keys} | {"seed": "mean"})
        for row in rows:
            violation = row["violation_probability"]
            colour = "green" if violation <= report["epsilon"] else "red"
            line: dict[str, Any] = {"run": Path(run["run_dir"]).name, "seed": row["seed"]}
            line["return"] = number(row["return"], 4)
            line["P(C > limit)"] = Text(chance(violation, report["epsilon"]), colour)
            line["mean cost"] = number(row["cost_mean"])
            lines.append(line | {name: number(row.get(key), 4) for name, key in gaps.items()})
    return lines
