"""A small sample of the attacks; `make test-attacks` runs all of them."""

from pathlib import Path

import numpy as np
import pytest

from attacks.__main__ import ATTACKS
from attacks.attack import Attack

SAMPLE = {
    "links out of the run": 8, "wrong command lines": 30,
    "claims on one run": 1, "killed: train": 5,
    "flips: "
    "table": 40, "flips: numpy export": 40, "flips: certificate": 40, "flips: checkpoint": 20,
}  # fmt: skip


@pytest.mark.parametrize(
    "attack",
    [attack for name in SAMPLE for attack in ATTACKS if attack.name == name],
    ids=lambda a: a.name,
)
@pytest.mark.filterwarnings("ignore")
def test_a_sample_of_the_attacks_is_survived(attack: Attack, tmp_path: Path):
    attack.prepare(tmp_path)
    numbers = [
        number * attack.tries // SAMPLE[attack.name] for number in range(SAMPLE[attack.name])
    ]
    try:
        problems = [
            attack.attempt(number, np.random.default_rng([7, number])) for number in numbers
        ]
    finally:
        attack.close()
    assert [problem for problem in problems if problem is not None] == []


def test_the_sample_is_of_attacks_that_there_are():
    assert set(SAMPLE) <= {attack.name for attack in ATTACKS}
