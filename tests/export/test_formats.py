"""Every format gives the same action distributions as JAX, for every kind of policy."""

import io
import json
import sys
import zipfile
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest

from canary.errors import CanaryError
from canary.export import numpy_format, numpy_policy, onnx_format, stablehlo_format
from canary.export.portable import TOLERANCE, check_parity, metadata, random_inputs, respond
from export.portable_policies import KINDS, OBSERVATIONS, make_portable

FORMATS = {"numpy": numpy_format, "onnx": onnx_format, "stablehlo": stablehlo_format}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMATS)
def test_parity(name: str, kind: str):
    portable = make_portable(**KINDS[kind])
    data = FORMATS[name].encode(portable)
    parity = FORMATS[name].check_parity(portable, data)
    assert parity.inputs == 512
    assert parity.distribution <= TOLERANCE
    assert parity.outputs <= 2e-5


def test_the_random_inputs_reach_every_branch():
    portable = make_portable(normalised=True, discount=0.9)
    observation, discount, spent = random_inputs(portable)
    limits = spent / portable.account.limit
    assert limits.min() < -10
    assert limits.max() > 10
    assert ((limits > 0) & (limits < 1)).sum() > 100
    assert discount.std() > 0.1
    statistics = portable.statistics
    deviations = (observation - np.asarray(statistics.mean))[:, 0] / float(
        statistics.squares[0] / 200
    ) ** 0.5
    assert np.abs(deviations).max() > 10


@pytest.mark.parametrize("name", FORMATS)
def test_a_policy_that_differs_is_noticed(name: str):
    """The artefact of a slightly different policy, limit or normaliser does not pass for this
    one."""
    portable = make_portable(normalised=True)
    bias = portable.policy.network.biases[0].at[2].add(1e-3)
    network = replace(portable.policy.network, biases=(bias, *portable.policy.network.biases[1:]))
    mean = portable.statistics.mean.at[1].add(0.01)
    for other in (
        replace(portable, policy=replace(portable.policy, network=network)),
        replace(portable, account=replace(portable.account, limit=2.51)),
        replace(portable, statistics=replace(portable.statistics, mean=mean)),
    ):
        with pytest.raises(CanaryError, match="differs from the trained one"):
            FORMATS[name].check_parity(portable, FORMATS[name].encode(other))


def test_not_a_number_is_no_parity():
    portable = make_portable()
    with pytest.raises(CanaryError, match="differs"):
        check_parity(
            portable, lambda observation, *_: {"logits": np.full((len(observation), 4), np.nan)}
        )


def test_metadata_is_in_every_artefact():
    portable = make_portable(normalised=True, discount=0.9)
    expected = json.loads(json.dumps(metadata(portable)))
    assert (expected["limit"], expected["cost_discount"], expected["epsilon"]) == (2.5, 0.9, 0.02)
    assert expected["environment"] == {"name": "Probe", "settings": {"slip": 0.25}}
    assert expected["policy_sha256"] == portable.identity.sha256
    model = onnx.load_from_string(onnx_format.encode(portable))
    in_onnx = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(in_onnx["canary"]) == expected
    assert stablehlo_format.load(stablehlo_format.encode(portable))[1] == expected
    assert numpy_policy.load(io.BytesIO(numpy_format.encode(portable))).metadata == expected


@pytest.mark.parametrize("batch", [1, 3])
def test_any_batch_size(batch: int):
    portable = make_portable()
    inputs = random_inputs(portable, batch)
    expected = respond(portable, *map(jnp.asarray, inputs))["logits"]
    session = onnxruntime.InferenceSession(
        onnx_format.encode(portable), providers=["CPUExecutionProvider"]
    )
    found = session.run(None, dict(zip(("observation", "discount", "spent"), inputs, strict=True)))
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    call, _ = stablehlo_format.load(stablehlo_format.encode(portable))
    np.testing.assert_allclose(call(*inputs)["logits"], expected, atol=1e-5)


def test_stablehlo_archive_is_portable_and_says_nothing_about_this_machine():
    portable = make_portable()
    data = stablehlo_format.encode(portable)
    assert data == stablehlo_format.encode(portable)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert set(archive.namelist()) == {"policy.jax", "policy.mlirbc", "metadata.json"}
        exported = jax.export.deserialize(bytearray(archive.read("policy.jax")))
        for name in archive.namelist():
            assert b"portable.py" not in archive.read(name)
            assert b"/canary/" not in archive.read(name)
        assert archive.read("policy.mlirbc")[:4] == b"ML\xefR"  # the mark of MLIR bytecode
    assert exported.platforms == ("cpu", "cuda", "tpu")
    assert exported.in_avals[0].shape[1] == OBSERVATIONS


def test_damaged_stablehlo_is_a_sentence():
    with pytest.raises(CanaryError, match="not an intact StableHLO policy"):
        stablehlo_format.load(b"PK nothing")


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_a_missing_extra_is_a_sentence(missing: str, monkeypatch: pytest.MonkeyPatch):
    portable = make_portable()
    data = onnx_format.encode(portable)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(CanaryError, match=rf'needs {missing}, .* pip install "canary-rl\[onnx\]"'):
        onnx_format.encode(portable) if missing == "onnx" else onnx_format.check_parity(
            portable, data
        )
