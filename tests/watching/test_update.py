"""Updates as records, and the logs of other tools: from hand-made rows, without training."""

import csv
import os
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from canary.constraints import Chance, Mean
from canary.errors import CanaryError
from canary.watching.update import Update, updates_of
from canary.watching.watcher import Watcher

ABOUT: dict[str, Any] = {
    "training": {"environments": 2, "rollout_length": 50, "seeds": [3, 5]},
    "tags": ["a"],
}
NAN = float("nan")
NOTHING = (
    pl.DataFrame(schema=["seed", "iteration", "steps"]),
    pl.DataFrame(schema={"seed": pl.Int32, "iteration": pl.Int32, "valid": pl.Boolean}),
)


def rows(first: int = 0) -> pl.DataFrame:
    """Seeds 3 and 5, two updates each."""
    seeds, iterations = [3, 3, 5, 5], [first, first + 1] * 2
    steps = [100 * (iteration + 1) for iteration in iterations]
    return pl.DataFrame(
        {"seed": seeds, "iteration": iterations, "steps": steps, "kl": [0.1, 0.2, NAN, 0.4]}
    )


def episodes(first: int = 0) -> pl.DataFrame:
    """Seed 3 ended two whole episodes in its first update and a staggered one in its second; seed 5
    none."""
    data = [(3, first, 1.0, 4.0, True), (3, first, 3.0, 6.0, True), (3, first + 1, 9.0, 9.0, False)]
    return pl.DataFrame(data, schema=["seed", "iteration", "return", "cost", "valid"], orient="row")


def found(first: int = 0, constraint: Any = Chance(5.5, 0.1)) -> list[Update]:  # noqa: B008
    return list(updates_of(rows(first), episodes(first), constraint, run=Path("run"), updates=9))


def test_an_update_says_what_every_seed_did():
    one, two = found()
    assert (one.number, one.updates, one.steps, two.number, two.steps) == (1, 9, 100, 2, 200)
    three, five = one.seeds
    assert (three.seed, three.episodes, three.return_mean, three.cost_mean) == (3, 2, 2.0, 5.0)
    assert three.constraint_value == 0.5
    assert three.metrics == {"kl": 0.1}
    assert (five.episodes, five.return_mean, five.constraint_value) == (0, None, None)
    assert five.numbers() == {"episodes": 0.0}  # neither what is unknown nor what is no number
    assert two.seeds[0].episodes == 0
    assert (one.mean("return_mean"), two.mean("kl"), two.mean("return_mean")) == (
        2.0,
        pytest.approx(0.3),
        None,
    )
    assert found(constraint=Mean(1.0))[0].seeds[0].constraint_value == 5.0


def test_every_number_has_a_name_of_its_own(tmp_path):
    """The algorithm's mean cost is over a window of batches; it must not pass for the batch's."""
    reported = rows().with_columns(cost_mean=pl.lit(7.5))
    (one, _) = updates_of(reported, episodes(), Chance(5.5, 0.1), run=tmp_path, updates=9)
    numbers = one.seeds[0].numbers()
    assert (numbers["cost_mean"], numbers["algorithm_cost_mean"]) == (5.0, 7.5)
    assert (one.mean("cost_mean"), one.mean("algorithm_cost_mean")) == (5.0, 7.5)
    assert one.seeds[0].metrics["cost_mean"] == 7.5
    watcher = Watcher(log="csv")
    watcher.open(tmp_path, ABOUT, Chance(5.5, 0.1), 9, NOTHING)
    watcher.see(reported, episodes())
    watcher.close()
    head, first, *_ = csv.reader((tmp_path / "log.csv").read_text().splitlines())
    assert len(set(head)) == len(head)
    row = dict(zip(head, first, strict=True))
    assert (row["cost_mean"], row["algorithm_cost_mean"]) == ("5.0", "7.5")


def watched(watcher: Watcher, run, first: int = 0) -> bool:
    """Two updates after `first`, which are in the run's tables already."""
    done = (
        NOTHING
        if not first
        else tuple(frame().filter(pl.col("iteration") < first) for frame in (rows, episodes))
    )
    watcher.open(run, ABOUT, Chance(5.5, 0.1), 9, done)  # type: ignore[arg-type]
    try:
        return watcher.see(rows(first), episodes(first))
    finally:
        watcher.close()


def test_a_callback_gets_every_update_and_stops_by_false(tmp_path):
    numbers: list[int] = []
    assert watched(Watcher(lambda update: numbers.append(update.number)), tmp_path)
    assert numbers == [1, 2]
    assert not watched(Watcher(lambda update: update.number < 2), tmp_path)
    with pytest.raises(CanaryError, match="returned 7; return False to stop"):
        watched(Watcher(lambda update: 7), tmp_path)  # type: ignore[arg-type,return-value]
    with pytest.raises(CanaryError, match="must be a function"):
        Watcher(3)  # type: ignore[arg-type]


def test_the_csv_log_of_a_resumed_run_is_that_of_an_uninterrupted_one(tmp_path):
    """It is made anew from the tables: a kill may have left it ahead, or a user may have lost it."""
    watched(Watcher(log="csv"), tmp_path)
    whole = (tmp_path / "log.csv").read_text()
    table = list(csv.DictReader(whole.splitlines()))
    assert [(row["seed"], row["update"]) for row in table] == [
        ("3", "1"), ("5", "1"), ("3", "2"), ("5", "2"),
    ]  # fmt: skip
    assert (table[0]["constraint_value"], table[1]["kl"], table[3]["kl"]) == ("0.5", "", "0.4")
    for damage in (whole + "5,2,20", "", whole[:50]):
        (tmp_path / "log.csv").write_text(damage)
        watcher = Watcher(log=["csv", "csv"])
        watcher.open(tmp_path, ABOUT, Chance(5.5, 0.1), 9, (rows(), episodes()))
        watcher.close()
        assert (tmp_path / "log.csv").read_text() == whole


def test_logs_that_cannot_be_written_are_sentences(monkeypatch):
    with pytest.raises(CanaryError, match="no log called 'cvs'; did you mean csv"):
        Watcher(log="cvs")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        CanaryError, match=r"needs the package wandb: pip install 'canary-rl\[wandb\]'"
    ):
        Watcher(log="wandb")


def test_the_tensorboard_log_has_a_curve_per_seed(tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    watched(Watcher(log="tensorboard"), tmp_path)
    (file,) = (tmp_path / "tensorboard" / "seed-3").iterdir()
    file.write_bytes(file.read_bytes()[:40])  # a kill: the rest was still in the writer's queue
    watcher = Watcher(log="tensorboard")
    watcher.open(tmp_path, ABOUT, Chance(5.5, 0.1), 9, (rows(), episodes()))
    watcher.close()
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
    watched(Watcher(log="wandb"), tmp_path)
    (file,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    for text in (b"seed-3/return_mean", b"constraint_value", b"rollout_length"):
        assert appears(text, file)
    assert os.environ["WANDB_MODE"] == "offline"


def appears(text: bytes, file, seconds: float = 60.0) -> bool:
    """Whether a file comes to hold a text: W&B writes offline logs from a process of its own, after
    `finish` as well."""
    end = time.monotonic() + seconds
    while text not in file.read_bytes() and time.monotonic() < end:
        time.sleep(0.1)
    return text in file.read_bytes()
