"""The display: exact bands, honest colours, quiet logs, and nothing on standard output."""

import io
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from rich.text import Text

from canary.constraints import Chance
from canary.runs.history import RecentHistory
from canary.terminal.console import error_console
from canary.terminal.progress import SeedStatus, TrainingProgress

CONSTRAINT = Chance(limit=5.5, epsilon=0.02)
TASK = (Text("canary on IcyLake"), CONSTRAINT, 1000)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def costs_of(violations: int, episodes: int) -> list[float]:
    return [6.0] * violations + [0.5] * (episodes - violations)


def seed(number: int, violations: int = 1, episodes: int = 100, **changes: Any) -> SeedStatus:
    costs = costs_of(violations, episodes)
    fields: dict[str, Any] = {"return_mean": 0.9, "costs": costs, "updates": 3}
    return SeedStatus(
        seed=number, **(fields | {"extras": {"improve": 0.9, "kl_used": 0.1}} | changes)
    )


def console(is_terminal: bool, width: int = 110, height: int = 40) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(
        file=file, force_terminal=is_terminal, width=width, height=height, color_system=None
    ), file


def rendered(progress: TrainingProgress, width: int = 110) -> str:
    plain, file = console(False, width)
    plain.print(progress._render())
    return file.getvalue()


def test_the_colour_says_whether_the_data_decide():
    for violations, style in ((0, "green"), (11, "green"), (20, "yellow"), (31, "red")):
        assert seed(0, violations, 1000).judged(CONSTRAINT).style == style
    assert str(seed(0, 0, 0).judged(CONSTRAINT)) == "-"


def test_the_table_has_a_row_per_seed_and_one_for_all():
    progress = TrainingProgress(*TASK, console=console(True)[0], clock=(clock := Clock()))
    progress.update(
        [seed(0), seed(7, violations=9, warning="no step accepted in 20 updates")], 250, 50.0
    )
    progress.busy("playing")
    clock.now += 5
    text = rendered(progress)
    rows = [line.split()[0] for line in text.splitlines() if "±" in line]
    assert rows == ["0", "7", "all"]
    assert "0.010 [0.000, 0.054]" in text
    assert "0.050 [0.024, 0.090]" in text  # 10 of 200
    assert "200 episodes of the last 3 updates" in text
    assert "improve   kl used" in text
    assert text.count("0.900     0.100") == 3
    assert "250 / 1,000 steps   00:05 elapsed   50 steps/s  00:10 left" in text
    assert "seed 7: no step accepted in 20 updates" in text
    assert "playing ..." in text


def test_a_log_gets_a_line_every_ten_seconds_or_twentieth():
    log, file = console(False)
    clock = Clock()
    with TrainingProgress(*TASK, console=log, clock=clock) as progress:
        progress.busy("compiling")
        for steps in range(1, 101):  # quickly: the first, then a twentieth later
            progress.update([seed(0)], steps, 50.0)
        for _ in range(21):  # slowly: at once, after 10 s and after 20 s
            clock.now += 1
            progress.update([seed(0)], 101, 50.0)
    lines = file.getvalue().splitlines()
    assert lines[0] == "compiling ..."
    assert [line.split()[1] for line in lines[1:]] == ["1", "51", "101", "101", "101"]
    numbers = "return 0.900  P(cost > 5.5) [95%] 0.010 [0.000, 0.054]  cost 0.555 ± 0.547  "
    assert f"{numbers}(100 episodes of the last 3 updates)  50 steps/s  00:17 left" in lines[-1]
    assert "\x1b" not in file.getvalue()


def test_a_log_says_once_that_a_seed_is_stuck():
    log, file = console(False)
    clock = Clock()
    warnings = ("stuck: rate 0.2", "stuck: rate 0.3", None, "stuck: rate 0.2", "timid: from 3 to 2")
    with TrainingProgress(*TASK, console=log, clock=clock) as progress:
        for warning in warnings:
            clock.now += 10
            progress.update([seed(0), seed(1, warning=warning)], 1, 50.0)
    told = [line for line in file.getvalue().splitlines() if line.startswith("seed")]
    assert told == ["seed 1: stuck: rate 0.2", "seed 1: timid: from 3 to 2"]


def test_quiet_is_quiet():
    for is_terminal in (True, False):
        terminal, file = console(is_terminal)
        with TrainingProgress(*TASK, quiet=True, console=terminal) as progress:
            progress.busy("compiling")
            progress.message("careful", warning=True)
            progress.update([seed(0, warning="stuck")], 1000, 50.0)
        assert file.getvalue() == ""


def test_a_pipe_is_never_animated(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert not error_console().is_interactive


def history_of(per_update: list[int], violating: int) -> SeedStatus:
    """A seed with so many episodes in each update; the first `violating` updates violate."""
    history = RecentHistory([4], CONSTRAINT)
    for update, count in enumerate(per_update):  # a chunk each
        cost = 9.0 if update < violating else 1.0
        ended = {"seed": 4, "iteration": update, "valid": True, "return": cost, "cost": cost}
        schema = {"seed": int, "iteration": int, "valid": bool, "return": float, "cost": float}
        episodes = pl.DataFrame([ended] * count, schema=schema)
        history.add(pl.DataFrame({"seed": [4], "iteration": [update]}), episodes)
    (status,) = history.status()
    return status


@pytest.mark.parametrize(
    ("per_update", "violating", "updates", "episodes"),
    [
        ([100] * 40, 38, 2, 200),  # short episodes: the two updates that have enough
        ([5] * 40, 20, 20, 100),  # long ones: twenty updates, and the line says so
    ],
)
def test_only_the_most_recent_updates_are_shown(per_update, violating, updates, episodes):
    """Never the mean of the run: the violations of earlier policies are not in it."""
    status = history_of(per_update, violating)
    assert (status.updates, len(status.costs)) == (updates, episodes)
    assert set(status.costs) <= {1.0}
    assert status.span == f"{episodes} episodes of the last {updates} updates"
