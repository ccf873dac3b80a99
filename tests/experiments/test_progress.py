"""The display: exact bands, honest colours, quiet logs, and nothing on standard output."""

import io
import math
import os
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console
from scipy import stats

from canary.experiments.formatting import chance, clock_time, number
from canary.experiments.progress import SeedStatus, Task, TrainingProgress, pool
from canary.experiments.summary_table import print_summary
from canary.numerics.binomial import clopper_pearson_interval

TASK = Task(env="IcyLake", algorithm="canary", limit=5.5, epsilon=0.02, total_steps=1000)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def seed(number: int, **changes: Any) -> SeedStatus:
    fields: dict[str, Any] = {
        "return_mean": 0.9,
        "violations": 1,
        "episodes": 100,
        "cost_mean": 0.5,
        "cost_deviation": 0.25,
    }
    return SeedStatus(seed=number, **(fields | {"tier_share": {"improve": 0.9, "recover": 0.1}} | changes))


def console(is_terminal: bool, width: int = 110, height: int = 40) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=is_terminal, width=width, height=height, color_system=None), file


def rendered(progress: TrainingProgress, width: int = 110) -> str:
    plain, file = console(False, width)
    plain.print(progress._render())
    return file.getvalue()


@pytest.mark.parametrize(("violations", "episodes"), [(0, 59), (3, 59), (59, 59), (1, 1), (17, 10_000)])
def test_the_band_is_scipys_exact_interval(violations: int, episodes: int):
    expected = stats.binomtest(violations, episodes).proportion_ci(0.95, method="exact")
    assert clopper_pearson_interval(violations, episodes) == pytest.approx(
        (expected.low, expected.high), rel=1e-9
    )


def test_no_episodes_no_knowledge():
    assert clopper_pearson_interval(0, 0) == (0.0, 1.0)
    assert chance(0, 0, 0.02) == ("-", "-", "dim")


@pytest.mark.parametrize(("violations", "style"), [(0, "green"), (11, "green"), (20, "yellow"), (31, "red")])
def test_the_colour_says_whether_the_data_decide(violations: int, style: str):
    assert chance(violations, 1000, 0.02)[2] == style


def test_small_epsilons_get_more_digits():
    assert chance(1, 10_000, 0.02)[0] == "0.000"
    assert chance(1, 10_000, 0.001)[0] == "0.0001"


def test_pooling_is_that_of_all_episodes_together():
    costs = [[1.0, 3.0, 5.0], [10.0]]
    means = [sum(values) / len(values) for values in costs]
    seeds = [
        seed(
            i,
            episodes=len(values),
            cost_mean=mean,
            cost_deviation=stats.tstd(values) * math.sqrt(2 / 3) if i == 0 else 0.0,
        )
        for i, (values, mean) in enumerate(zip(costs, means, strict=True))
    ]
    whole = pool([*seeds, seed(2, episodes=0, violations=0, cost_mean=math.nan, return_mean=math.nan)])
    everything = [*costs[0], *costs[1]]
    assert whole.cost_mean == pytest.approx(sum(everything) / 4)
    assert whole.cost_deviation == pytest.approx(stats.tstd(everything) * math.sqrt(3 / 4))
    assert (whole.violations, whole.episodes) == (2, 4)
    assert whole.tier_share["improve"] == pytest.approx(0.9)
    assert math.isnan(pool([seed(0, episodes=0, violations=0)]).return_mean)


def test_the_table_has_a_row_per_seed_and_one_for_all():
    progress = TrainingProgress(TASK, console=console(True)[0], clock=(clock := Clock()))
    progress.update([seed(0), seed(7, violations=9, warning="no step accepted in 20 updates")], 250, 50.0)
    progress.notice("checkpoint saved")
    clock.now += 5
    text = rendered(progress)
    rows = [line.split()[0] for line in text.splitlines() if "±" in line]
    assert rows == ["0", "7", "all"]
    assert "0.010   0.000 - 0.054" in text
    assert "0.050   0.024 - 0.090" in text  # 10 of 200
    assert "improve 90%  recover 10%" in text
    assert "250 / 1,000 steps   50 steps/s   0:05 elapsed   0:10 left" in text
    assert "seed 7: no step accepted in 20 updates" in text
    assert "checkpoint saved" in text


def test_many_seeds_are_summarised():
    progress = TrainingProgress(TASK, console=console(True)[0])
    progress.update([seed(i, warning="stuck") for i in range(30)], 250, 50.0)
    rows = [line.split()[0:2] for line in rendered(progress).splitlines() if "±" in line]
    assert [row[0] for row in rows] == [*map(str, range(12)), "18", "all"]
    assert "28 more seeds have warnings" in rendered(progress)


def test_numbers_are_whole_on_a_narrow_terminal():
    progress = TrainingProgress(TASK, console=console(True, width=80)[0])
    progress.update([seed(0), seed(1)], 250, 50.0)
    text = rendered(progress, width=80)
    assert "0.900           0.010   0.000 - 0.054   0.500 ± 0.250   improve" in text
    assert max(map(len, text.splitlines())) <= 80


def test_what_takes_its_time_is_shown_until_the_next_update():
    progress = TrainingProgress(TASK, console=console(True)[0], clock=(clock := Clock()))
    progress.busy("compiling")
    clock.now += 8
    assert "compiling ... 8 s" in rendered(progress)
    progress.update([seed(0)], 10, 1.0)
    assert "compiling" not in rendered(progress)


def test_a_terminal_sees_the_live_table_and_messages_stay(capsys: pytest.CaptureFixture[str]):
    terminal, file = console(True)
    with TrainingProgress(TASK, console=terminal) as progress:
        progress.update([seed(0)], 250, 50.0)
        progress.message("going on from checkpoint-00000120.npz")
        print("{}")
    assert capsys.readouterr().out == "{}\n"
    assert "P(cost > 5.5)" in file.getvalue()
    assert "going on from checkpoint-00000120.npz" in file.getvalue()


def test_a_log_gets_a_line_every_ten_seconds_or_twentieth():
    log, file = console(False)
    clock = Clock()
    with TrainingProgress(TASK, console=log, clock=clock) as progress:
        progress.busy("compiling")
        for steps in range(1, 101):  # quickly: the first, then a twentieth later
            progress.update([seed(0)], steps, 50.0)
        for _ in range(21):  # slowly: at once, after 10 s and after 20 s
            clock.now += 1
            progress.update([seed(0)], 101, 50.0)
            progress.notice("checkpoint saved")
    lines = file.getvalue().splitlines()
    assert lines[0] == "compiling ..."
    assert [line.split()[1] for line in lines[1:]] == ["1", "51", "101", "101", "101"]
    assert (
        "return 0.900  P(cost > 5.5) 0.010 [0.000 - 0.054]  cost 0.500 ± 0.250  50 steps/s  0:17 left"
        in lines[-1]
    )
    assert "\x1b" not in file.getvalue()


def test_quiet_is_quiet():
    for is_terminal in (True, False):
        terminal, file = console(is_terminal)
        with TrainingProgress(TASK, quiet=True, console=terminal) as progress:
            progress.busy("compiling")
            progress.message("careful", warning=True)
            progress.update([seed(0, warning="stuck")], 1000, 50.0)
        assert file.getvalue() == ""


def test_standard_output_stays_clean_and_a_pipe_is_never_animated():
    code = (
        "from canary.experiments.progress import *\n"
        "with TrainingProgress(Task('E', 'a', 1.0, 0.1, 10)) as p:\n"
        "    p.busy('compiling'); p.update([SeedStatus(0, 1.0, 0, 9, 0.5, 0.1)], 10, 5.0); print('{}')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "FORCE_COLOR": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == ("{}\n", 0)
    assert "100%" in done.stderr
    assert "\x1b[?25l" not in done.stderr  # a live display begins by hiding the cursor


def test_numbers_and_times_read_well():
    assert [number(x) for x in (-0.0001, 9.99, 12.345, 123.45, -5300.2, math.nan, math.inf)] == [
        *("0.000", "9.990", "12.35", "123.5", "-5,300", "-", "inf")
    ]
    assert [clock_time(x) for x in (5.9, 65, 3661)] == ["0:05", "1:05", "1:01:01"]


def test_the_summary_has_intervals_verdicts_and_paths():
    summary = {
        "env": "my[env]",
        "algorithm": "canary",
        "limit": 5.5,
        "epsilon": 0.02,
        "violation_probability": 0.02,
        "violation_jitter": 0.004,
        "safe_fraction": 0.5,
        "return_mean": 0.85,
        "return_per_seed": [0.9, 0.8],
        "violation_per_seed": [0.01, 0.03],
    }
    terminal, file = console(False)
    print_summary(terminal, summary)
    lines = [line.split() for line in file.getvalue().splitlines() if line.strip()]
    assert lines[0] == ["canary", "on", "my[env]", "P(cost", ">", "5.5)", "<=", "0.02"]
    assert lines[3] == ["0", "0.900", "0.010", "-", "-", "yes"]
    assert lines[4] == ["1", "0.800", "0.030", "-", "-", "no"]
    assert lines[5] == ["all", "0.850", "0.020", "-", "0.004", "1", "of", "2"]
    more = {"seed_ids": [3, 4], "episodes_per_seed": [1000, 1000], "jitter_per_seed": [0.003, 0.005]}
    print_summary(
        terminal, summary | more | {"note": "Training episodes.", "paths": {"run": "runs/" + "x" * 150}}
    )
    text = file.getvalue()
    assert "4    0.800           0.030   0.020 - 0.043    0.005       no" in text
    assert "Training episodes." in text
    assert "runs/" + "x" * 150 + "\n" in text
