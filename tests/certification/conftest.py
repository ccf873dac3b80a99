"""A small run and its certificate."""

from pathlib import Path

import pytest

from canary.certification.plan import Plan
from canary.certification.run import certify_run
from runs.untrained_runs import untrained_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def quick() -> dict:
    """How it was certified."""
    return {"plan": Plan(episodes=150, batch=50), "evaluation_seed": 11, "quiet": True}


@pytest.fixture(scope="session")
def certificate(run: Path, quick: dict) -> dict:
    return certify_run(run, **quick, shift="slip=0.2")
