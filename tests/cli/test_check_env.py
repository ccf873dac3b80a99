"""`canary check-env`: the constraint that it advises about, and the mistakes that it refuses as
`canary train` does."""

import json

import pytest

from canary.cli.main import main

WALK = "problems.faulty_environments:"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "128 random episodes"),
        (["Walk"], "Limits worth trying"),
        (["Walk", "--limit", "15"], "P(cost > 15)"),
        (["Walk", "--constraint", "cvar", "--limit", "15"], "CVaR 5%"),
    ],
)
def test_the_constraint_is_what_was_said_or_the_environments_own(arguments, words, capsys):
    line = [WALK + arguments[0], *arguments[1:], "--episodes", "8"] if arguments else ["IcyLake"]
    assert main(["check-env", *line, "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (
        words
        in f"{report['advice']['text']} {report['episodes']['cost']['episodes']} random episodes"
    )
