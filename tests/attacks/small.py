"""What is killed: a run of four updates that is saved after each, and a study of it."""

from pathlib import Path

from canary.studies.catalogue import ALL_STUDIES, Row, Study

ALGORITHM = "ppo"
SETTINGS = (
    "env.map=SFF/FHF/FFG", "env.horizon=12", "algo.hidden=[4]", "training.merge_capacity=0", "training.environments=5",
    "training.rollout_length=20", "training.checkpoint_seconds=0", "training.chunk=1",
)  # fmt: skip
STEPS, SEED = 400, 5
STUDY = Study(
    title="Killed",
    rows=(Row(name="a", algorithm=ALGORITHM, overrides=SETTINGS, seeds=(SEED,), steps=STEPS),),
)


def training(out: Path) -> list[str]:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    run = [
        "--algo",
        ALGORITHM,
        "--total-steps",
        str(STEPS),
        "--seeds",
        f"{SEED}-{SEED}",
        "--out",
        str(out),
    ]
    return ["train", *run, *settings, "--quiet"]


def know_the_study() -> None:
    """In this process, so that `reproduce` finds it."""
    ALL_STUDIES.setdefault("killed", STUDY)


def reproducing(place: Path) -> list[str]:
    return [
        "reproduce",
        "killed",
        "--runs",
        str(place / "runs"),
        "--results",
        str(place / "results"),
        "--quiet",
    ]
