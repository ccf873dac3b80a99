"""Every format gives the same action distributions as JAX, for every kind of policy."""

import io
import json
import sys
from dataclasses import replace

import onnx
import pytest

from canary.errors import CanaryError
from canary.exporting import numpy_policy
from canary.exporting.formats import FORMATS, TOLERANCE, check_parity, numpy_bytes, onnx_bytes
from exporting.portable_policies import KINDS, make_portable


def parity(name: str, exported, truth):
    return check_parity(truth, FORMATS[name].implementation(FORMATS[name].encode(exported)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMATS)
def test_parity(name: str, kind: str):
    portable = make_portable(**KINDS[kind])
    found = parity(name, portable, portable)
    assert found["checked_inputs"] == 512
    assert found["max_abs_difference"] <= TOLERANCE
    assert found["max_output_difference"] <= 2e-5


@pytest.mark.parametrize("name", FORMATS)
def test_a_policy_that_differs_is_noticed(name: str):
    """Another weight, limit or normaliser does not pass for this policy."""
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
            parity(name, other, portable)


def test_metadata_is_in_every_file():
    portable = make_portable(normalised=True, discount=0.9)
    expected = json.loads(json.dumps(portable.metadata))
    assert (expected["limit"], expected["cost_discount"], expected["epsilon"]) == (2.5, 0.9, 0.02)
    assert expected["environment"] == {"name": "Probe", "settings": {"slip": 0.25}}
    assert expected["policy_sha256"] == portable.sha256
    model = onnx.load_from_string(onnx_bytes(portable))
    assert json.loads({e.key: e.value for e in model.metadata_props}["canary"]) == expected
    assert numpy_policy.load(io.BytesIO(numpy_bytes(portable))).metadata == expected


def test_a_missing_extra_is_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(CanaryError, match=r"needs onnxruntime.*canary-rl"):
        parity("onnx", make_portable(), make_portable())
