"""`canary train --engine`: a setting of the environment, and a sentence where there is none."""

import pytest

from canary.cli import main
from canary.cli.train import Train, _choices


def test_the_engine_becomes_a_setting_of_the_environment():
    assert "env.engine=native" in _choices(Train(env="ecoant", engine="native"))["overrides"]
    assert not any("engine" in item for item in _choices(Train(env="EcoAnt"))["overrides"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "mjx"], "IcyLake simulates no physics"),
        (["--env", "EcoAnt", "--engine", "warp"], "must be one of auto, native, mjx"),
        (["--env", "EcoAmt", "--engine", "mjx"], "did you mean EcoAnt"),
    ],
)
def test_an_engine_that_cannot_be_is_refused_in_a_sentence(arguments, words, capsys, tmp_path):
    assert main(["train", *arguments, "--out", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1
    assert not list(tmp_path.iterdir())
