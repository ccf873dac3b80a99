"""Tables for people: what they say, and that nothing of how it is coloured is printed as text."""

import io
from typing import Any

import pytest

from canary.terminal.check_table import print_check
from canary.terminal.console import PlainConsole
from canary.terminal.listing import NUMBERS, print_lists

COST = {"episodes": 16, "mean": 11.4, "deviation": 7.3, "quantiles": {"0.05": 2.0, "0.95": 26.0}}
REPORT: dict[str, Any] = {
    "env": "Lake [odd]",
    "ok": True,
    "findings": [{"level": "warning", "field": "cost", "text": "costs[0] is odd"}],
    "observation_size": 16,
    "actions": "4 choices",
    "horizon": 1000,
    "episodes": {"cost": COST, "return_mean": 0.875, "length_mean": 60.7, "terminated_share": 0.88},
    "advice": {"text": "The limit is interesting."},
}


def printed(report: dict[str, Any]) -> str:
    console = PlainConsole(file=io.StringIO(), width=60)
    print_check(console, report)
    return console.file.getvalue()


def test_a_check_is_printed_as_text_alone():
    text = printed(REPORT)
    assert (
        "Lake [odd]: observation of size 16, actions: 4 choices, episodes have up to 1,000 steps"
        in text
    )
    assert "warning  costs[0] is odd" in text
    assert "5% 2   95% 26" in text
    assert "[/" not in text
    assert "[bold]" not in text


@pytest.mark.parametrize(
    ("change", "end"),
    [
        ({}, "it can be trained on; 1 warning"),
        ({"findings": []}, "nothing is wrong"),
        ({"ok": False}, "it cannot be trained on as it is"),
    ],
)
def test_a_check_ends_with_its_verdict(change, end):
    assert printed(REPORT | change).splitlines()[-1] == end


def test_what_cannot_be_traced_has_no_facts():
    bare = {"env": "Lake", "ok": False, "findings": [], "episodes": {}, "advice": {}}
    assert printed(bare) == "it cannot be trained on as it is\n"


@pytest.mark.parametrize(
    ("found", "shown"),
    [
        ({"constraint_label": "mean cost", "constraint_value": 23.65}, "mean cost 23.65"),
        ({"constraint_label": "P(cost > 6)", "constraint_value": 0.6}, "P(cost > 6) 0.600"),
        ({"violation_probability": 0.6}, "P(violation) 0.600"),  # a run of an older version
        ({}, "-"),
    ],
)
def test_a_listed_run_shows_what_its_own_constraint_limits(found, shown):
    run = {
        "path": "runs/a", "status": "finished", "env": "IcyLake", "seeds": 1, "steps": 9, "total_steps": 9,
        "tags": [], "differs": {}, "constraint_label": None, **dict.fromkeys(NUMBERS),
    }  # fmt: skip
    console = PlainConsole(width=110, file=io.StringIO())
    print_lists(console, "runs", [run | found], {})
    (line,) = [line for line in console.file.getvalue().splitlines() if "finished" in line]
    assert line.rstrip().endswith(f" {shown}")
