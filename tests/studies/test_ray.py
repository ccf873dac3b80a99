"""The units of a study over a real Ray cluster on this machine, one node of which is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

import pytest

from canary.studies import store
from canary.studies.catalogue import Row, Study
from canary.studies.runner import Places, reproduce

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(  # looked for, not imported: that takes seconds, in quick runs too
        find_spec("ray") is None, reason="Ray is not installed: pip install 'canary-rl[ray]'"
    ),
]

STUDY = Study(
    title="Over a cluster",
    rows=(
        Row(name="plain", algorithm="ppo", seeds=(5, 6, 7), steps=30_000, overrides=(
            "algo.hidden=[8]", "training.environments=5", "training.rollout_length=100", "training.merge_capacity=0",
            "training.checkpoint_seconds=0.5", "training.chunk=2",
        )),
    ),
)  # fmt: skip


def patiently(start):
    """Ray gives a node 30 seconds to start, which a busy machine may not have."""
    for _ in range(5):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    raise AssertionError("no node of the Ray cluster could be started; the machine is too busy")


@pytest.fixture
def cluster():
    import ray
    from ray.cluster_utils import Cluster

    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args={"num_cpus": 0}))
    nodes = [patiently(lambda: cluster.add_node(num_cpus=1)) for _ in range(2)]
    cluster.connect()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


DRIVER = """
import os, signal, sys
from pathlib import Path
from canary.studies import store
from canary.studies.runner import Places, reproduce
from studies.test_ray import STUDY

write = store.write_sealed
def die(path, value):
    if path.name == "row.json":
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, value)

store.write_sealed = die
root = Path(sys.argv[1])
places = Places(runs=root / "runs", results=root / "results")
reproduce("over", STUDY, places, engine="ray", quiet=True)
"""


def test_a_killed_driver_and_a_killed_node_cost_time_and_change_no_number(cluster, tmp_path):
    """The driver dies while it stores the first unit; the next one loses a node in training."""
    whole, (victim, _) = cluster
    places = Places(runs=tmp_path / "runs", results=tmp_path / "results")
    command = [sys.executable, "-c", DRIVER, str(tmp_path)]
    settings = os.environ | {"RAY_ADDRESS": whole.address}
    first = subprocess.run(
        command, env=settings, capture_output=True, text=True, timeout=600, check=False
    )
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert store.read_row(places.results / "over" / "plain") is None
    killed, began = threading.Event(), time.time()

    def kill():
        while not any(
            path.stat().st_mtime > began for path in places.runs.rglob("checkpoints/*.npz")
        ):
            time.sleep(0.1)
        whole.remove_node(victim, allow_graceful=False)
        killed.set()

    threading.Thread(target=kill, daemon=True).start()
    reproduce("over", STUDY, places, engine="ray", quiet=True)
    assert killed.is_set()
    local = Places(runs=tmp_path / "local-runs", results=tmp_path / "local-results")
    reproduce("over", STUDY, local, quiet=True)
    ours, theirs = (place.results / "over" for place in (places, local))
    rows = [store.read_row(place / "plain") for place in (ours, theirs)]
    for row in rows:
        for seed in row.seeds.values():
            seed.pop("train_seconds")
    assert list(rows[0].seeds) == [5, 6, 7]
    assert rows[0].seeds == rows[1].seeds
    assert rows[0].blocks.equals(rows[1].blocks)
    assert (ours / "table.md").read_bytes() == (theirs / "table.md").read_bytes()
