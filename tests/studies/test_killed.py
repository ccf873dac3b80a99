"""A study that is killed at random moments ends with the same store and the same table as one that
is not.

The process dies at a random one of its writes (`attacks.death`), so that the moments do not depend
on how fast the machine is.
"""

import random
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from canary.studies import store

pytestmark = pytest.mark.slow

KILLS = 6
WRITES = 400  # at most, before a process dies; the whole study makes about twice as many
SCRIPT = """
import sys
from pathlib import Path
from attacks.death import Mortal
from canary.studies.data import Study, Variant
from canary.studies.run import Places, reproduce

SMALL = ("algo.hidden=[8]", "training.environments=5", "training.rollout_length=100", "training.merge_capacity=0",
         "training.checkpoint_seconds=0", "training.chunk=2")
STUDY = Study(title="Killed", seeds=(5, 6), total_steps=10_000, variants=(
    Variant(name="a", about="", algorithm="ppo", overrides=SMALL),
    Variant(name="b", about="", algorithm="ppo", overrides=(*SMALL, "algo.entropy=0.1")),
))
root = Path(sys.argv[1])
with Mortal(int(sys.argv[2]), torn=True, real=True):
    reproduce("killed", STUDY, Places(runs=root / "runs", results=root / "results"), quiet=True)
"""


def train(root: Path, dies_at: int) -> int:
    """Train the study in a process that dies at that write (0: it lives); returns its exit code."""
    command = [sys.executable, "-c", SCRIPT, str(root), str(dies_at)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_killed_at_random_moments_it_ends_with_the_same_table(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train(whole, 0) == 0
    rng = random.Random(0)
    kills = sum(train(killed, rng.randint(1, WRITES)) != 0 for _ in range(KILLS))
    assert kills >= KILLS // 2
    assert train(killed, 0) == 0
    ours, theirs = (root / "results" / "killed" for root in (killed, whole))
    for name in ("a", "b"):
        for kind in ("episodes", "metrics"):
            assert store.read_table(ours / name, kind).equals(store.read_table(theirs / name, kind))
        for kind in ("exact.json", "config.json"):
            assert (ours / name / kind).read_bytes() == (theirs / name / kind).read_bytes()
    for kind in ("table.md", "study.png", "study.json"):
        assert (ours / kind).read_bytes() == (theirs / kind).read_bytes(), kind
    first, second = (
        pl.read_csv(place / "table.csv").drop("steps_per_second") for place in (ours, theirs)
    )
    assert first.equals(second)
    left = [
        path.name for path in killed.rglob("*") if path.name.endswith((".tmp", ".draft", ".lock"))
    ]
    assert not left
