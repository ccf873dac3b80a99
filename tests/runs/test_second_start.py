"""A second start finds its programs in the compilation cache."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "environment",
    [
        "IcyLake",
        pytest.param("EcoAnt", marks=pytest.mark.slow),
        pytest.param("PointGoal", marks=pytest.mark.slow),
    ],
)
def test_a_second_start_adds_nothing_to_the_cache(environment: str, tmp_path: Path):
    variables = {name: value for name, value in os.environ.items() if "JAX_COMPIL" not in name}
    command = [
        sys.executable, "-m", "canary", "train", "--env", environment, "--seeds", "1",
        "--total-steps", "10000", "--no-final-check", "--quiet", "--out", str(tmp_path / "runs"),
    ]  # fmt: skip

    def programs() -> set[str]:
        subprocess.run(command, check=True, env=variables | {"XDG_CACHE_HOME": str(tmp_path)})
        folder = tmp_path / "canary" / "compiled"
        return {file.name for file in folder.iterdir() if file.name.endswith("-cache")}

    first = programs()
    assert first
    assert programs() == first
