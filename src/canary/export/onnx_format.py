"""The ONNX format: one graph from raw observation and raw spent cost to the action distribution.

    observation [batch, obs], discount [batch], spent [batch]  ->  logits [batch, action], or mean and log_std

The graph is written node by node: a handful of standard operators (opset 17) that every runtime
has.
"""

import json
from importlib import import_module
from typing import Any

import numpy as np

from canary.errors import CanaryError
from canary.export.portable import (
    Outputs,
    Parity,
    PortablePolicy,
    metadata,
    output_names,
)
from canary.export.portable import check_parity as check
from canary.identity import NORMALISER
from canary.networks import LOG_STD_FLOOR
from canary.rollout import SPENT_CLIP, CostAccount

OPSET, IR_VERSION = 17, 8  # of ONNX 1.12, so that older runtimes can read it
METADATA_KEY = "canary"


def encode(portable: PortablePolicy) -> bytes:
    """The serialised model; `metadata_props["canary"]` holds the metadata as JSON."""
    onnx = _require("onnx")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    nodes, constants = _graph(portable)
    batch, observations = "batch", portable.observation_size
    actions = portable.policy.network.biases[-1].shape[0]
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node(kind, inputs, [output], **settings)
                for kind, inputs, output, settings in nodes
            ],
            "canary_policy",
            [
                helper.make_tensor_value_info("observation", real, [batch, observations]),
                helper.make_tensor_value_info("discount", real, [batch]),
                helper.make_tensor_value_info("spent", real, [batch]),
            ],
            [
                helper.make_tensor_value_info(name, real, [batch, actions])
                for name in output_names(portable)
            ],
            [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="canary",
    )
    helper.set_model_props(model, {METADATA_KEY: json.dumps(metadata(portable), allow_nan=False)})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def check_parity(portable: PortablePolicy, data: bytes) -> Parity:
    """Run the model in onnxruntime and compare it with JAX."""
    runtime = _require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def run(observation: np.ndarray, discount: np.ndarray, spent: np.ndarray) -> Outputs:
        names = output_names(portable)
        feed = {"observation": observation, "discount": discount, "spent": spent}
        return dict(zip(names, session.run(names, feed), strict=True))

    return check(portable, run)


Node = tuple[str, list[str], str, dict[str, Any]]


def _graph(portable: PortablePolicy) -> tuple[list[Node], dict[str, np.ndarray]]:
    """Operators in order, as (kind, inputs, output, attributes), and the named constants they
    use."""
    arrays = portable.identity.arrays
    reads = portable.policy.network.weights[0].shape[0]
    constants = {
        "limit": np.float32(float(portable.account.limit)),
        "spent_low": np.float32(-SPENT_CLIP),
        "spent_high": np.float32(SPENT_CLIP),
        "last_axis": np.array([1]),
    } | {name: value for name, value in arrays.items() if name.startswith("policy.network")}
    nodes: list[Node] = []
    observation = "observation"
    if portable.statistics is not None:
        normaliser, observation = _normaliser(arrays), "normalised"
        constants |= normaliser
        nodes += [
            ("Sub", ["observation", "mean_observation"], "centred", {}),
            ("Div", ["centred", "deviation"], "standardised", {}),
            ("Clip", ["standardised", "observation_low", "observation_high"], observation, {}),
        ]
    nodes += [
        ("Div", ["spent", "limit"], "spent_limits", {}),
        ("Clip", ["spent_limits", "spent_low", "spent_high"], "spent_clipped", {}),
        ("Unsqueeze", ["spent_clipped", "last_axis"], "spent_column", {}),
        ("Unsqueeze", ["discount", "last_axis"], "discount_column", {}),
        ("Concat", [observation, "discount_column", "spent_column"], "x", {"axis": 1}),
    ]
    current = "x"
    if reads < portable.observation_size + CostAccount.SIZE:  # it does not see its account
        constants |= {"first": np.array([0]), "reads": np.array([reads])}
        nodes.append(("Slice", ["x", "first", "reads", "last_axis"], "x_read", {}))
        current = "x_read"
    nodes += _network(current, output_names(portable)[0], len(portable.policy.network.weights))
    if "policy.log_std" in arrays:
        constants["log_std_row"] = np.maximum(arrays["policy.log_std"], np.float32(LOG_STD_FLOOR))
        nodes += [
            ("Shape", ["mean"], "shape", {}),
            ("Expand", ["log_std_row", "shape"], "log_std", {}),
        ]
    return nodes, {name: np.asarray(value) for name, value in constants.items()}


def _network(current: str, output: str, layers: int) -> list[Node]:
    """A tanh network with a linear head."""
    nodes: list[Node] = []
    for layer in range(layers):
        weights = [f"policy.network.{part}[{layer}]" for part in ("weights", "biases")]
        if layer == layers - 1:
            nodes.append(("Gemm", [current, *weights], output, {}))
        else:
            nodes.append(("Gemm", [current, *weights], f"layer_{layer}", {}))
            nodes.append(("Tanh", [f"layer_{layer}"], f"hidden_{layer}", {}))
            current = f"hidden_{layer}"
    return nodes


def _normaliser(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    count, squares = arrays["statistics.count"], arrays["statistics.squares"]
    variance = squares / np.maximum(count, np.float32(1)) if count > 1 else np.ones_like(squares)
    return {
        "mean_observation": arrays["statistics.mean"],
        "deviation": np.sqrt(variance + np.float32(NORMALISER["floor"])),
        "observation_low": np.asarray(-NORMALISER["clip"], np.float32),
        "observation_high": np.asarray(NORMALISER["clip"], np.float32),
    }


def _require(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise CanaryError(
            f"The ONNX format needs {module}, which is not installed; run pip install "
            '"canary-rl[onnx]".'
        ) from None
