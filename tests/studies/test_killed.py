"""A study that is killed at random moments ends with the same store and the same table as one that is not."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from canary.studies import store

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
from pathlib import Path
from canary.studies.data import Study, Variant
from canary.studies.run import Places, reproduce

SMALL = ("algo.hidden=[8]", "training.environments=5", "training.rollout_length=100", "training.merge_capacity=0",
         "training.checkpoint_seconds=0.2", "training.chunk=2")
STUDY = Study(title="Killed", seeds=(5, 6), total_steps=10_000, variants=(
    Variant(name="a", about="", algorithm="ppo", overrides=SMALL),
))
root = Path(sys.argv[1])
reproduce("killed", STUDY, Places(runs=root / "runs", results=root / "results"), quiet=True)
"""


def start(root: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(root)], stderr=subprocess.PIPE)


def test_killed_at_random_moments_it_ends_with_the_same_table(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(whole)
    began = time.monotonic()
    assert process.wait(timeout=900) == 0, process.stderr.read().decode()
    usual = time.monotonic() - began
    rng, kills = random.Random(0), 0
    for _ in range(12):
        process = start(killed)
        try:
            code = process.wait(timeout=rng.uniform(0.3, 0.9) * usual if kills < 3 else 900)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continue
        assert code == 0, process.stderr.read().decode()
        break
    assert kills >= 2
    for name in ("a",):
        ours, theirs = (root / "results" / "killed" / name for root in (killed, whole))
        for kind in ("episodes", "metrics"):
            assert store.read_table(ours, kind).equals(store.read_table(theirs, kind))
        assert (ours / "exact.json").read_bytes() == (theirs / "exact.json").read_bytes()
    ours, theirs = ((root / "results" / "killed" / "table.md").read_text() for root in (killed, whole))
    # Of a run that was there before, the code is not known; all else is the same.
    assert _without_code(ours) == _without_code(theirs)


def _without_code(text: str) -> list[list[str]]:
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|")]
    return [row[:16] + row[17:] for row in rows]
