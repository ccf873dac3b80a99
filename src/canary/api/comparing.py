"""Compare runs in Python."""

from collections.abc import Sequence
from pathlib import Path

from canary.api.face import RUNS, Run
from canary.reporting.records import Comparison
from canary.runs.directory import find_run


def compare(
    runs: Sequence[Run | str | Path], *, figure: str | Path | None = None, out: str | Path = RUNS
) -> Comparison:
    """Runs of one environment beside each other, with intervals over seeds; `figure` names a .png of their curves.

    A run may be its path or its name below `out`.
    """
    from canary.reporting.comparison import compare_runs, comparison_figure
    from canary.reporting.figures import save

    places = [run.directory if isinstance(run, Run) else find_run(str(run), Path(out)) for run in runs]
    comparison = compare_runs(places)
    if figure is not None:
        save(comparison_figure(places, comparison), Path(figure))
        comparison["figure"] = str(figure)
    return comparison
