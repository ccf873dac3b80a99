"""Tables for people: what they say."""

import io
from typing import Any

import pytest

from canary.terminal.console import PlainConsole
from canary.terminal.tables import NUMBERS, print_lists, print_summary

SUMMARY: dict[str, Any] = {
    "env": "my[env]",
    "algorithm": "canary",
    "constraint": {"kind": "chance", "limit": 5.5, "epsilon": 0.02},
    "constraint_text": "P(cost > 5.5) <= 0.02",
    "constraint_label": "P(cost > 5.5)",
    "constraint_allowed": 0.02,
    "constraint_value": 0.02,
    "constraint_per_seed": [0.01, 0.03],
    "constraint_interval": None,
    "constraint_interval_per_seed": [None, [0.02, 0.043]],
    "violation_jitter": 0.004,
    "seed_ids": [3, 4],
    **dict.fromkeys(("cost_mean", "cost_deviation", "length_mean")),
    **{f"{name}_per_seed": [None, None] for name in ("cost", "cost_deviation", "length")},
    "jitter_per_seed": [None, 0.005],
    "return_mean": 0.85,
    "return_per_seed": [0.9, 0.8],
}


def test_the_summary_has_intervals_verdicts_and_paths():
    console = PlainConsole(file=io.StringIO(), width=80)
    final = SUMMARY | {"episodes_per_seed": [300, 300], "return_mean": 0.777}
    more = {
        "note": "Training episodes.", "final_check": final, "warnings": {"4": "timid"},
        "yardstick": "low stays within the limit", "paths": {"run": "runs/" + "x" * 150},
    }  # fmt: skip
    print_summary(console, SUMMARY | more)
    text = console.file.getvalue()
    lines = [line.split() for line in text.splitlines() if line.strip()]
    assert lines[0] == ["canary", "on", "my[env]", "P(cost", ">", "5.5)", "<=", "0.02"]
    assert lines[3] == ["3", "0.900", "0.010", "-", "yes"]
    assert lines[4] == ["4", "0.800", "0.030", "[0.020,", "0.043]", "0.005", "no"]
    assert lines[5] == ["all", "0.850", "0.020", "0.004", "1", "of", "2"]
    after = text.partition("Training episodes.")[2]
    assert "300 fresh episodes per seed" in after
    assert "0.777" in after
    assert "seed 4 is timid." in after
    assert "Without learning: low stays within the limit." in after
    assert "runs/" + "x" * 150 + "\n" in text


@pytest.mark.parametrize(
    ("found", "shown"),
    [({"constraint_label": "mean cost", "constraint_value": 23.65}, "mean cost 23.65"), ({}, "-")],
)
def test_a_listed_run_shows_what_its_own_constraint_limits(found, shown):
    run = {
        "path": "runs/a", "status": "finished", "env": "IcyLake", "seeds": 1, "steps": 9, "total_steps": 9,
        "differs": {}, "constraint_label": None, **dict.fromkeys(NUMBERS),
    }  # fmt: skip
    console = PlainConsole(width=110, file=io.StringIO())
    print_lists(console, {"runs": [run | found]}, "runs")
    (line,) = [line for line in console.file.getvalue().splitlines() if "finished" in line]
    assert line.rstrip().endswith(f" {shown}")
