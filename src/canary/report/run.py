"""`canary report`: from names of runs and studies to one HTML file.

Its figures are drawn by a short script of our own as SVG. A plotting library would put three to
four megabytes of script into every page; this is ten kilobytes, works offline, and has what the
page needs: lines with bands, bars, stacked shares, a readout under the pointer.
"""

import json
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from canary.constraints import Chance
from canary.errors import CanaryError
from canary.report.gather import Frontier, run_subject, study_subjects
from canary.runs import directory

Progress = Callable[[int, int, str], None]
SHARES = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # of epsilon: where the frontier is computed


def make_report(
    names: Sequence[str],
    runs: Path,
    results: Path,
    out: Path,
    *,
    frontier: bool = True,
    progress: Progress | None = None,
) -> Path:
    """Write the page of these runs and studies; what cannot be read is said on it, as long as
    something can."""
    subjects: list[dict[str, Any]] = []
    problems: list[str] = []
    exact = exact_frontier(progress) if frontier else lambda run, config: None
    for name in names:
        try:
            if (results / name / "study.json").exists():
                found, broken = study_subjects(results / name, exact)
                subjects += found
                problems += broken
            else:
                subjects.append(run_subject(directory.find_run(name, runs), exact))
        except CanaryError as error:
            problems.append(str(error))
    if not subjects:
        raise CanaryError(" ".join(problems) or "Name a run or a study to report on.")
    title = (
        names[0]
        if len(names) == 1 and names[0] != "latest"
        else ", ".join(s["name"] for s in subjects[:3])
    )
    page = render(f"canary: {title}", subjects, problems, f"canary report {' '.join(names)}")
    directory.write_atomically(out, page.encode())
    return out


def exact_frontier(progress: Progress | None) -> Frontier:
    """Best returns under each constraint around epsilon and the run's policies on them, where the
    environment is finite."""
    known: dict[str, dict[str, Any] | None] = {}

    def compute(run: Path | None, config: dict[str, Any]) -> dict[str, Any] | None:
        problem = json.dumps(
            [str(run), config["environment"], config["constraint"]], sort_keys=True
        )
        if problem not in known:  # rows of a study may share it
            known[problem] = _frontier(run, config, progress)
        return known[problem]

    return compute


def _frontier(
    run: Path | None, config: dict[str, Any], progress: Progress | None
) -> dict[str, Any] | None:
    from canary.config.config import config_from_dict
    from canary.exact.mdp import from_environment
    from canary.exact.run import frontier_report

    try:
        whole = config_from_dict(config)
        from_environment(whole.environment)
        if not isinstance(whole.constraint, Chance):
            return None
        limit, epsilon = whole.constraint.limit, whole.constraint.epsilon
        epsilons = [share * epsilon for share in SHARES if share * epsilon < 0.9]
        found = frontier_report(
            whole.environment,
            limit,
            epsilon,
            epsilons=epsilons,
            runs=[] if run is None else [run],
            progress=progress,
        )
    except (
        CanaryError
    ):  # not finite, not of this version, or not undiscounted: the page does without
        return None
    lines: dict[str, list[list[float]]] = {}
    for point in found["frontier"]:
        if point["return"] is not None:
            lines.setdefault(point["constraint"], []).append([point["epsilon"], point["return"]])
    return {
        "lines": lines,
        "optima": {name: point["return"] for name, point in found["optima"].items()},
        "policies": [
            {
                "seed": seed["seed"],
                "violation": seed["violation_probability"],
                "return": seed["return"],
            }
            for trained in found["runs"]
            for seed in trained["seeds"]
        ],
        "exact": True,
    }


def render(title: str, subjects: list[dict[str, Any]], problems: list[str], command: str) -> str:
    """One HTML document without any reference to another file or address."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("canary.report", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    files = resources.files("canary.report")
    return pages.get_template("report.html.jinja").render(
        title=title,
        command=command,
        problems=problems,
        subjects=subjects,
        style=files.joinpath("report.css").read_text(),
        script=files.joinpath("report.js").read_text(),
        data=embedded(subjects),
    )


def embedded(value: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
