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
        (["Walk", "--constraint", "mean", "--limit", "15"], "mean cost"),
        (["Walk", "--constraint", "cvar", "--limit", "15"], "CVaR 5%"),
        (["Walk", "--constraint", "mean"], "Limits worth trying"),
        (["MeanWalk"], "mean cost"),
        (["MeanWalk", "--constraint", "chance"], "P(cost > 15)"),
        (["TailWalk"], "CVaR 10%"),
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--limit", "-1", "--epsilon", "2"], "The limit must be a positive finite number, not -1"),
        (["--epsilon", "2"], "Epsilon must lie strictly between 0 and 1, not 2"),
        (["--limit", "nan"], "--limit must be a number"),
        (["--episodes", "0"], "--episodes takes a positive whole number, not 0"),
        (["--constraint", "median"], "The constraint must be one of chance, mean, cvar"),
        (["--constraint", "mean", "--epsilon", "0.1"], "has no epsilon; leave it out"),
    ],
)
def test_what_train_refuses_is_refused(arguments, words, capsys):
    for environment in ("IcyLake", f"{WALK}Walk"):
        assert main(["check-env", environment, *arguments]) == 2
        assert words in capsys.readouterr().err
