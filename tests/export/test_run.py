"""`canary export` on a run directory."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from canary.config.config import config_from_dict
from canary.errors import CanaryError
from canary.export import numpy_policy, stablehlo_format
from canary.export import run as exports
from canary.export.portable import Parity
from canary.runs.directory import read_json
from canary.runs.policies import load_policies
from runs.untrained_runs import LIMIT, untrained_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained_run(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("name", ["onnx", "stablehlo", "numpy"])
def test_every_format_is_written_checked_and_described(run: Path, name: str):
    report = exports.export_run(run, format=name, seed=3)
    json.dumps(report, allow_nan=False)
    path = Path(report["path"])
    assert path.parent == run / "exports"
    assert path.stat().st_size == report["bytes"]
    assert numpy_policy.read_checked(path) == path.read_bytes()
    assert (
        path.parent / f"{path.name}.sha256"
    ).read_text() == f"{report['file_sha256']}  {path.name}\n"
    assert report["max_abs_difference"] <= 1e-5
    assert (report["seed"], report["updates"], report["limit"], report["format"]) == (
        3,
        7,
        LIMIT,
        name,
    )
    policies = load_policies(config_from_dict(read_json(run / "config.json")), run)
    assert report["policy_sha256"] == policies.identity(3).sha256
    assert report["environment"]["settings"]["map"] == "SFF/FHF/FFG"


def test_what_was_written_is_the_policy_of_the_seed(run: Path, tmp_path: Path):
    paths = {
        (name, seed): Path(
            exports.export_run(run, format=name, seed=seed, out=tmp_path / f"{name}{seed}")["path"]
        )
        for name, seed in [("numpy", 0), ("numpy", 3), ("onnx", 3), ("stablehlo", 3)]
    }
    inputs = (
        np.eye(9, dtype=np.float32),
        np.ones(9, np.float32),
        np.linspace(0, 2, 9, dtype=np.float32),
    )
    expected = numpy_policy.load(paths["numpy", 3]).outputs(*inputs)["logits"]
    assert (
        np.abs(expected - numpy_policy.load(paths["numpy", 0]).outputs(*inputs)["logits"]).max()
        > 1e-2
    )
    session = onnxruntime.InferenceSession(
        paths["onnx", 3].read_bytes(), providers=["CPUExecutionProvider"]
    )
    found = session.run(None, dict(zip(("observation", "discount", "spent"), inputs, strict=True)))
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    call, about = stablehlo_format.load(paths["stablehlo", 3].read_bytes())
    np.testing.assert_allclose(call(*inputs)["logits"], expected, atol=1e-5)
    assert about["seed"] == 3


def test_canary_exports_its_risk_critics(run: Path):
    report = exports.export_run(run, format="numpy")
    assert report["seed"] == 0  # the first
    episode = numpy_policy.load(report["path"]).start(0)
    risks = []
    for _ in range(4):
        risks.append(episode.risk(np.eye(9)[4]))
        episode.act(np.eye(9)[4])
        episode.spend(1.0)
    assert risks[-1] == 1.0  # three steps on the ice are more than the limit
    assert all(0 <= risk <= 1 for risk in risks)


def test_other_methods_have_no_risk_critics(tmp_path: Path):
    run = untrained_run(tmp_path, algorithm="ppo")
    report = exports.export_run(run, format="numpy")
    policy = numpy_policy.load(report["path"])
    assert not policy.has_critics
    assert policy.arrays["policy.network.weights[0]"].shape[0] == 9  # PPO does not see its account
    assert policy.start(0).act(np.eye(9)[0]) in range(4)


def test_a_policy_that_fails_the_check_is_not_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> Parity:
        raise CanaryError("The exported policy differs.")

    monkeypatch.setattr(exports.numpy_format, "check_parity", refuse)
    with pytest.raises(CanaryError, match="differs"):
        exports.export_run(run, format="numpy", out=tmp_path / "policy.npz")
    assert not (tmp_path / "policy.npz").exists()


class TestMistakes:
    def test_unknown_format(self, run: Path):
        with pytest.raises(CanaryError, match="no export format called 'onx'; did you mean onnx"):
            exports.export_run(run, format="onx")

    def test_unknown_seed(self, run: Path):
        with pytest.raises(CanaryError, match="no seed 1; it has 0, 3"):
            exports.export_run(run, seed=1)

    def test_a_directory(self, run: Path, tmp_path: Path):
        with pytest.raises(CanaryError, match="is a directory"):
            exports.export_run(run, out=tmp_path)

    def test_no_run(self, tmp_path: Path):
        with pytest.raises(CanaryError, match="missing"):
            exports.export_run(tmp_path / "none")

    def test_a_place_that_cannot_be(self, run: Path, tmp_path: Path):
        (tmp_path / "file").touch()
        with pytest.raises(CanaryError, match="Cannot write"):
            exports.export_run(run, format="numpy", out=tmp_path / "file" / "policy.npz")

    def test_a_linked_directory(self, tmp_path: Path):
        run = untrained_run(tmp_path / "runs")
        (tmp_path / "elsewhere").mkdir()
        (run / "exports").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(CanaryError, match="is a link"):
            exports.export_run(run, format="numpy")
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_no_flipped_byte_of_an_onnx_file_passes_the_digest_beside_it(run: Path, tmp_path: Path):
    report = exports.export_run(run, format="onnx", out=tmp_path / "policy.onnx")
    path, random = Path(report["path"]), np.random.default_rng(0)
    data = path.read_bytes()
    for place in random.choice(len(data), 200, replace=False):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="digest differs"):
            numpy_policy.read_checked(path)
