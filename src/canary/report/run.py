"""`canary report`: from names of runs and studies to one HTML file."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from canary.constraints import Chance
from canary.errors import CanaryError
from canary.report.gather import run_subject, study_subjects
from canary.report.page import render
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
    """Write the page of these runs and studies; what cannot be read is said on it, as long as something can."""
    subjects: list[dict[str, Any]] = []
    problems: list[str] = []
    for name in names:
        study = results / name
        if (study / "study.json").exists():
            found, broken = study_subjects(study)
            subjects += found
            problems += broken
            continue
        try:
            run = directory.find_run(name, runs)
            subjects.append(
                run_subject(run, exact_frontier(progress) if frontier else lambda run, config: None)
            )
        except CanaryError as error:
            problems.append(str(error))
    if not subjects:
        raise CanaryError(" ".join(problems) or "Name a run or a study to report on.")
    title = (
        names[0] if len(names) == 1 and names[0] != "latest" else ", ".join(s["name"] for s in subjects[:3])
    )
    page = render(f"canary: {title}", subjects, problems, f"canary report {' '.join(names)}")
    directory.write_atomically(out, page.encode())
    return out


def exact_frontier(progress: Progress | None) -> Callable[[Path, dict[str, Any]], dict[str, Any] | None]:
    """Best returns under each constraint around epsilon and the run's policies on them, where the environment is finite."""

    def compute(run: Path, config: dict[str, Any]) -> dict[str, Any] | None:
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
                whole.environment, limit, epsilon, epsilons=epsilons, runs=[run], progress=progress
            )
        except CanaryError:  # not finite, not of this version, or not undiscounted: the page does without
            return None
        lines: dict[str, list[list[float]]] = {}
        for point in found["frontier"]:
            if point["return"] is not None:
                lines.setdefault(point["constraint"], []).append([point["epsilon"], point["return"]])
        return {
            "lines": lines,
            "optima": {name: point["return"] for name, point in found["optima"].items()},
            "policies": [
                {"seed": seed["seed"], "violation": seed["violation"], "return": seed["return"]}
                for seed in found["runs"][0]["seeds"]
            ],
            "exact": True,
        }

    return compute
