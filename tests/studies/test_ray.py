"""The units of a study over a real Ray cluster of several nodes on this machine, one of which is killed in the middle."""

import json
import threading
import time

import pytest

from canary.errors import CanaryError
from canary.studies import store
from canary.studies.data import Study, Variant
from canary.studies.ray_engine import ray_engine
from canary.studies.run import Places, reproduce

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'canary-rl[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

STUDY = Study(
    title="Over a cluster",
    seeds=(5, 6, 7),
    total_steps=60_000,
    variants=(
        Variant(name="plain", about="", algorithm="ppo", overrides=(
            "algo.hidden=[8]", "training.environments=5", "training.rollout_length=100", "training.merge_capacity=0",
            "training.checkpoint_seconds=0.5", "training.chunk=2",
        )),
    ),
)  # fmt: skip


@pytest.fixture
def cluster():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.connect()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def test_a_killed_node_costs_time_and_changes_no_number(cluster, tmp_path):
    whole, (victim, _) = cluster
    places = Places(runs=tmp_path / "runs", results=tmp_path / "results")
    killed = threading.Event()

    def kill():
        while not list(places.runs.rglob("checkpoints/*")):  # two units are in training
            time.sleep(0.1)
        whole.remove_node(victim, allow_graceful=False)
        killed.set()

    threading.Thread(target=kill, daemon=True).start()
    reproduce("over", STUDY, places, engine=ray_engine(quiet=True), quiet=True)
    assert killed.is_set()
    local = Places(runs=tmp_path / "local-runs", results=tmp_path / "local-results")
    reproduce("over", STUDY, local, quiet=True)
    ours, theirs = (place.results / "over" / "plain" for place in (places, local))
    assert store.stored_seeds(ours) == [5, 6, 7]
    for kind in ("episodes", "metrics"):
        assert store.read_table(ours, kind).equals(store.read_table(theirs, kind))
    assert (ours / "exact.json").read_bytes() == (theirs / "exact.json").read_bytes()
    first, second = (json.loads((group / "summary.json").read_text()) for group in (ours, theirs))
    assert first["violation_per_seed"] == second["violation_per_seed"]


def test_a_mistake_on_a_worker_is_its_sentence_here(cluster, tmp_path):
    places = Places(runs=tmp_path / "runs", results=tmp_path / "results")
    (tmp_path / "runs").write_text("not a directory")
    with pytest.raises(CanaryError, match="Cannot write"):
        reproduce("over", STUDY, places, engine=ray_engine(quiet=True), quiet=True)
