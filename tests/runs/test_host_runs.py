"""Training on environments outside JAX: what stops it, what is left behind, and how it goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import canary
from canary.config.config import make_config
from canary.environments import from_gymnasium
from canary.errors import CanaryError
from canary.runs import checkpoint
from canary.runs.manifest import read_manifest
from canary.runs.seeds import make_groups
from canary.runs.stored_states import revive
from problems.host_environments import WALK

CONSTRAINT = canary.Chance(limit=3.0, epsilon=0.2)
SETTINGS = (
    "algo.hidden=[4]", "algo.epochs=1", "training.environments=3", "training.rollout_length=10",
    "training.stagger=false", "training.chunk=1",
)  # fmt: skip
UPDATE = 30  # steps


def train(environment, out, updates=6):
    return canary.train(
        environment,
        "ppo",
        CONSTRAINT,
        seeds=1,
        total_steps=updates * UPDATE,
        out=out,
        overrides=SETTINGS,
        quiet=True,
    )


def children() -> set[int]:
    """Worker processes of this one."""
    listed = subprocess.run(
        ["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(None, 2) for line in listed.splitlines()[1:])
    return {
        int(pid)
        for pid, parent, what in rows
        if int(parent) == os.getpid() and "canary.host.worker" in what
    }


def the_run(out: Path) -> Path:
    (run,) = out.iterdir()
    return run


@pytest.mark.parametrize(
    ("how", "workers", "sentence"),
    [
        ("raise", 0, r"failed in lane 0 in step 45 of its episode: RuntimeError: the motor is stuck at host_environments"),
        ("raise", 2, r"failed in lane 0 in step 45 of its episode: RuntimeError: the motor is stuck"),
        ("die", 2, r"failed in lane \d in step 45 of its episode: its worker process ended with code 3"),
        ("nan", 0, r"gave a (reward|cost) that is not finite.*: seed 0, update 5, step 5 of 10, lane 0 .environment step 133"),
    ],
)  # fmt: skip
def test_a_failure_is_told_and_what_was_trained_is_kept(tmp_path, how, workers, sentence):
    environment = from_gymnasium(
        WALK, horizon=60, workers=workers, fails_at=45, how=how, noise=0.01, drift=0.0
    )
    with pytest.raises(CanaryError, match=sentence) as caught:
        train(environment, tmp_path)
    assert "walk" in str(caught.value)
    run = the_run(tmp_path)
    assert f"saved as it was after update 4: canary train --resume {run}" in str(caught.value)
    assert read_manifest(run)["status"] == "failed"
    assert [path.name for path in checkpoint.checkpoints(run / "checkpoints")] == [
        "checkpoint-00000004.npz"
    ]
    assert canary.load(run, environment).metrics["iteration"].to_list() == [0, 1, 2, 3]
    assert not children()


@pytest.mark.parametrize(
    ("fails_at", "sentence"),
    [(3, "failed in lane 0 in step 3 of its episode"), (35, "Nothing was trained yet")],
    ids=["in the check", "in the first update"],
)
def test_a_failure_before_anything_was_trained_leaves_nothing(tmp_path, fails_at, sentence):
    environment = from_gymnasium(WALK, horizon=60, fails_at=fails_at, noise=0.01, drift=0.0)
    with pytest.raises(CanaryError, match=sentence):
        canary.train(
            environment, "ppo", CONSTRAINT, seeds=1, total_steps=120, out=tmp_path / "runs",
            overrides=(*SETTINGS, "training.rollout_length=40"), quiet=True,
        )  # fmt: skip
    assert not (tmp_path / "runs").exists()


def groups_of(environment):
    settings = (*SETTINGS, f"training.total_steps={10 * UPDATE}")
    return make_groups(make_config(environment, "ppo", CONSTRAINT, "fast", settings, seeds=(0, 1)))


def test_a_resumed_run_has_the_bits_of_one_that_never_stopped(tmp_path):
    arguments = {"horizon": 25, "noise": 0.3, "drift": 0.2}
    first = groups_of(from_gymnasium(WALK, workers=0, **arguments))
    first.start()
    first.compile()
    first.advance(2)
    path = tmp_path / "checkpoint-00000002.npz"
    checkpoint.save(path, first.stacked(), metadata={"iteration": 2})
    first.advance(3)
    other = from_gymnasium(WALK, workers=2, **arguments)
    second = groups_of(other)
    states, _ = checkpoint.load(path, second.structure())
    states, notes = revive(second.trainer, states)
    assert notes == []
    second.restore(states)
    second.compile()
    second.advance(3)
    for one, two in zip(
        jax.tree.leaves(first.stacked()), jax.tree.leaves(second.stacked()), strict=True
    ):
        if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, two = jax.random.key_data(one), jax.random.key_data(two)
        np.testing.assert_array_equal(one, two)
    other.close()
    assert not children()


def test_a_resume_says_what_an_environment_that_forgets_its_seed_loses():
    groups = groups_of(
        from_gymnasium("problems.host_environments:forgetful", horizon=25, workers=0)
    )
    groups.start()
    groups.compile()
    groups.advance(1)
    states, notes = revive(groups.trainer, groups.stacked())
    assert len(notes) == 1
    assert "of 6 episodes of" in notes[0]
    assert "other observations" in notes[0]
    lost = np.asarray(states.lanes.environment.inner.steps) == 0
    assert lost.any()
    assert (np.asarray(states.lanes.spent)[lost] == 0).all()
    groups.restore(states)
    metrics, _ = groups.advance(1)
    assert not metrics["fault"].any()


def test_workers_end_when_their_trainer_is_killed(tmp_path):
    script = (
        "import jax, time\n"
        "from canary.environments import from_gymnasium\n"
        f"environment = from_gymnasium({WALK!r}, horizon=9, workers=2)\n"
        "jax.vmap(environment.reset)(jax.random.split(jax.random.key(0), 2))\n"
        "print([worker._process.pid for worker in environment._episodes._stage._workers], "
        "flush=True)\n"
        "time.sleep(60)\n"
    )
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=settings) as process:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().strip("[]\n").split(",")]
        assert len(workers) == 2
        process.send_signal(signal.SIGKILL)
    for _ in range(100):
        alive = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
        if not alive:
            break
        time.sleep(0.1)
    assert not alive


def test_another_setting_trains_by_the_same_program():
    """The settings are on the host, which steps the environments of the run that asks."""
    first, second, cut = (
        groups_of(from_gymnasium(WALK, workers=0, noise=0.01, **arguments))
        for arguments in (
            {"horizon": 25, "drift": 0.2},
            {"horizon": 25, "drift": 0.9},
            {"horizon": 24, "drift": 0.2},
        )
    )
    alone = groups_of(from_gymnasium(WALK, workers=0, noise=0.01, horizon=25, drift=0.9))
    for groups in (first, second, cut, alone):
        groups.start()
    programs = [
        groups._chunk.lower(groups._states[0], np.int32(1), groups._numbers)
        for groups in (first, second, cut)
    ]
    texts = [program.as_text() for program in programs]
    assert texts[0] == texts[1] != texts[2]
    first.compile()
    second._programs = first._programs
    alone.compile()
    one, two, expected = (groups.advance(2) for groups in (first, second, alone))
    jax.tree.map(np.testing.assert_array_equal, two, expected)  # of its own environments
    assert any(
        (np.asarray(a) != np.asarray(b)).any()
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    )
