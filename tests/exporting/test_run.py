"""`canary export` on a run directory."""

import hashlib
import json
from pathlib import Path

import pytest

from canary.config.run_config import config_from_dict
from canary.errors import CanaryError
from canary.exporting import formats
from canary.exporting.run import export_run
from canary.runs.directory import read_config
from canary.runs.policies import load_policies
from runs.untrained_runs import LIMIT, untrained_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_format_is_written_checked_and_described(run: Path, name: str):
    report = export_run(run, format=name, seed=3)
    json.dumps(report, allow_nan=False)
    path = Path(report["path"])
    assert path.parent == run / "exports"
    assert path.stat().st_size == report["bytes"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == report["file_sha256"]
    note = path.with_name(f"{path.name}.sha256").read_text()
    assert note == f"{report['file_sha256']}  {path.name}\n"
    assert report["max_abs_difference"] <= 1e-5
    stated = [report[key] for key in ("seed", "updates", "limit", "format")]
    assert stated == [3, 7, LIMIT, name]
    policies = load_policies(config_from_dict(read_config(run)), run)
    assert report["policy_sha256"] == policies.trained(3).sha256
    assert report["environment"]["settings"]["map"] == "SFF/FHF/FFG"


def test_a_policy_that_fails_the_check_is_not_written(run: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(formats, "TOLERANCE", -1.0)
    with pytest.raises(CanaryError, match="differs"):
        export_run(run, format="numpy", out=tmp_path / "policy.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"format": "onx"}, "did you mean onnx"),
        ({"seed": 1}, "no seed 1; it has 0, 3"),
        ({"out": Path("file/policy.npz")}, "Cannot write"),
    ],
)
def test_mistakes_are_sentences(run: Path, tmp_path: Path, options: dict, sentence: str):
    (tmp_path / "file").touch()
    if "out" in options:
        options = options | {"out": tmp_path / options["out"]}
    with pytest.raises(CanaryError, match=sentence):
        export_run(run, **({"format": "numpy"} | options))
