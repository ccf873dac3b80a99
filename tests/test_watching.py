"""Updates as records, and the logs of other tools: from hand-made rows, without training."""

import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from canary.errors import CanaryError
from canary.watching import Callback, check_logs, updates_of, watching

CONFIG: dict[str, Any] = {
    "training": {"environments": 2, "rollout_length": 50, "seeds": [3, 5], "total_steps": 950},
    "constraint": {"kind": "chance", "limit": 5.5, "epsilon": 0.1},
}
# Seeds 3 and 5, two updates each. Seed 3 ends two whole episodes in its first update and a
# staggered one in its second; seed 5 ends none.
ROWS = pl.DataFrame(
    {
        "seed": [3, 3, 5, 5],
        "iteration": [0, 1, 0, 1],
        "steps": [100, 200, 100, 200],
        "kl": [0.1, 0.2, float("nan"), 0.4],
        "cost_mean": [7.5] * 4,
    }
)
EPISODES = pl.DataFrame(
    [(3, 0, 1.0, 4.0, True), (3, 0, 3.0, 6.0, True), (3, 1, 9.0, 9.0, False)],
    schema=["seed", "iteration", "return", "cost", "valid"],
    orient="row",
)


def test_an_update_says_what_every_seed_did():
    one, two = updates_of(ROWS, EPISODES, config=CONFIG, run=Path("run"))
    assert (one.number, one.updates, one.steps, two.number, two.steps) == (1, 9, 100, 2, 200)
    three, five = one.seeds
    assert (three.seed, three.episodes, three.return_mean, three.cost_mean) == (3, 2, 2.0, 5.0)
    assert three.constraint_value == 0.5
    assert three.metrics == {"kl": 0.1, "cost_mean": 7.5}
    assert (five.episodes, five.return_mean, five.constraint_value) == (0, None, None)
    assert two.seeds[0].episodes == 0
    assert (one.mean("return_mean"), two.mean("return_mean")) == (2.0, None)
    assert two.mean("kl") == pytest.approx(0.3)
    # The algorithm's mean cost is over a window of batches; it must not pass for the batch's
    assert (one.mean("cost_mean"), one.mean("algorithm_cost_mean")) == (5.0, 7.5)
    assert five.numbers() == {
        "episodes": 0.0, "return_mean": None, "cost_mean": None, "constraint_value": None,
        "kl": None, "algorithm_cost_mean": 7.5,
    }  # fmt: skip
    other = CONFIG | {"constraint": {"kind": "mean", "limit": 1.0}}
    (mean, _) = updates_of(ROWS, EPISODES, config=other, run=Path("run"))
    assert mean.seeds[0].constraint_value == 5.0


def watched(run: Path, callback: Callback | None = None, logs: Sequence[str] = (), done: int = 0):
    """Whether training goes on after these updates, of which so many are done already."""
    before, after = pl.col("iteration") < done, pl.col("iteration") >= done
    tables = ROWS.filter(before), EPISODES.filter(before)
    with watching(run, CONFIG, tables, callback, logs) as see:
        return see(ROWS.filter(after), EPISODES.filter(after))


def test_a_callback_gets_every_update_and_stops_by_false(tmp_path):
    numbers: list[int] = []
    assert watched(tmp_path, lambda update: numbers.append(update.number))
    assert numbers == [1, 2]
    assert not watched(tmp_path, lambda update: update.number < 2)


def test_the_csv_log_of_a_resumed_run_is_that_of_an_uninterrupted_one(tmp_path):
    """It is made anew from the tables: a kill may have left it ahead, or a user may have lost it."""
    watched(tmp_path, logs=["csv"])
    whole = (tmp_path / "log.csv").read_text()
    table = list(csv.DictReader(whole.splitlines()))
    assert [(row["seed"], row["update"]) for row in table] == [
        ("3", "1"), ("5", "1"), ("3", "2"), ("5", "2"),
    ]  # fmt: skip
    assert (table[0]["constraint_value"], table[1]["kl"], table[3]["kl"]) == ("0.5", "", "0.4")
    for damage in (whole + "5,2,20", "", whole[:50]):
        (tmp_path / "log.csv").write_text(damage)
        watched(tmp_path, logs=["csv"], done=1)
        assert (tmp_path / "log.csv").read_text() == whole


def test_logs_that_cannot_be_written_are_sentences(monkeypatch):
    with pytest.raises(CanaryError, match="did you mean csv"):
        check_logs(["cvs"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CanaryError, match=r"pip install 'canary-rl\[wandb\]'"):
        check_logs(["wandb"])


def test_the_tensorboard_log_has_a_curve_per_seed(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    watched(tmp_path, logs=["tensorboard"])
    (file,) = (tmp_path / "tensorboard" / "seed-3").iterdir()
    file.write_bytes(file.read_bytes()[:40])  # a kill: the rest was still in the writer's queue
    watched(tmp_path, logs=["tensorboard"], done=2)
    (file,) = (tmp_path / "tensorboard" / "seed-3").iterdir()
    data, scalars = file.read_bytes(), {}
    while data:  # length, its checksum, the event, its checksum
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        scalars |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        data = data[16 + size :]
    assert scalars["return_mean", 100] == 2.0
    assert scalars["kl", 200] == pytest.approx(0.2)
    assert (tmp_path / "tensorboard" / "seed-5").is_dir()


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name, value in {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}.items():
        monkeypatch.setenv(name, value)
    watched(tmp_path, logs=["wandb"])
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    end = time.monotonic() + 60  # W&B writes from a process of its own, after `finish` as well
    for text in (b"seed-3/return_mean", b"constraint_value", b"rollout_length"):
        while text not in file.read_bytes() and time.monotonic() < end:
            time.sleep(0.1)
        assert text in file.read_bytes()
