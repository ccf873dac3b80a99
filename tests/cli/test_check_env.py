"""`canary check-env` advises about the constraint that was said, or about the environment's own."""

import json

import pytest

from canary.cli.main import main

WALK = "problems.faulty_environments:Walk"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("IcyLake", "P(cost > 5.5)"),
        (WALK, "Limits worth trying"),
        (f"{WALK} --limit 15", "P(cost > 15)"),
        (f"{WALK} --constraint cvar --limit 15", "CVaR 5%"),
    ],
)
def test_the_constraint_is_what_was_said_or_the_environments_own(line, words, capsys):
    assert main(["check-env", *line.split(), "--episodes", "8", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert words in report["advice"]["text"]
    assert report["episodes"]["cost"]["episodes"] == 8
