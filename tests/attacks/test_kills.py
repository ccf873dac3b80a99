"""A run that is killed between any two writes, and resumed, equals one that was left alone: its
tables, its newest and kept states, and its logs. `kills.py` kills real processes."""

import subprocess
import sys
from pathlib import Path

import pytest

from attacks import kills
from attacks.death import Mortal
from attacks.warm import warm


def train(out: Path) -> dict[str, object]:
    kills.train(out, steps=200, log=("csv",))
    return kills.content(out)


def test_a_kill_between_any_two_writes_loses_nothing(tmp_path: Path):
    with warm("ppo"):
        whole, write = train(tmp_path / "whole"), 0
        names = {name.partition("/")[2] for name in whole}
        assert {"kept/checkpoint-00000002.npz", "log.csv", "episodes.parquet"} <= names
        killed = Mortal(1)
        while write == 0 or killed.is_dead:
            write += 1
            killed = Mortal(write)
            with killed:
                train(tmp_path / str(write))
            found = train(tmp_path / str(write))
            odd = [name for name in {**found, **whole} if found.get(name) != whole.get(name)]
            assert not odd, f"killed at write {write}: {odd}"
        assert write > 20


@pytest.mark.slow
def test_kills_at_any_moment_lose_nothing(tmp_path: Path):
    subprocess.run([sys.executable, kills.__file__, tmp_path, "20"], check=True)
