"""The ONNX format: one graph from raw observation and raw spent cost to the action distribution.

    observation [batch, obs], pace [batch], spent [batch]  ->  logits [batch, action], or mean and log_std

The graph is built node by node from standard operators (opset 17) that every runtime has.
"""

import json
from importlib import import_module
from typing import Any

import numpy as np

from canary.errors import CanaryError
from canary.export.formats import INPUTS, Implementation, Outputs, metadata, output_names
from canary.export.trained_policy import TrainedPolicy
from canary.identity import NORMALISER
from canary.networks import LOG_STD_FLOOR
from canary.rollout import SPENT_CLIP

OPSET, IR_VERSION = 17, 8  # of ONNX 1.12, so that older runtimes can read it

Graph = tuple[list[tuple[str, list[str], str, dict[str, Any]]], dict[str, Any]]
"""Operators in order, as (kind, inputs, output, attributes), and the named constants they use."""


def onnx_bytes(trained: TrainedPolicy) -> bytes:
    """The serialised model; `metadata_props["canary"]` holds the metadata as JSON."""
    onnx = _require("onnx")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    nodes, constants = _graph(trained)
    actions = trained.policy.network.biases[-1].shape[0]
    shapes = {"observation": ["batch", trained.place.observation_size]}
    if costs := np.shape(trained.account.limit):  # several
        shapes["spent"] = ["batch", *costs]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output], **how) for kind, inputs, output, how in nodes],
        "canary_policy",
        [helper.make_tensor_value_info(n, real, shapes.get(n, ["batch"])) for n in INPUTS],
        [helper.make_tensor_value_info(n, real, ["batch", actions]) for n in output_names(trained)],
        [onnx.numpy_helper.from_array(np.asarray(value), n) for n, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="canary"
    )
    helper.set_model_props(model, {"canary": json.dumps(metadata(trained), allow_nan=False)})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def onnx_implementation(data: bytes) -> Implementation:
    """The model in onnxruntime."""
    runtime = _require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(*inputs: np.ndarray) -> Outputs:
        return dict(
            zip(names, session.run(names, dict(zip(INPUTS, inputs, strict=True))), strict=True)
        )

    return run


def _graph(trained: TrainedPolicy) -> Graph:
    arrays, network = trained.identity.arrays, trained.policy.network
    nodes, constants = _inputs(trained)
    constants |= {n: value for n, value in arrays.items() if n.startswith("policy.network")}
    current, layers, output = "x", len(network.weights), output_names(trained)[0]
    reads = network.weights[0].shape[0]
    if reads < trained.place.observation_size + trained.account.size:  # it does not see its account
        constants |= {"first": np.array([0]), "reads": np.array([reads])}
        nodes.append(("Slice", ["x", "first", "reads", "last_axis"], "x_read", {}))
        current = "x_read"
    for layer in range(layers):  # a tanh network with a linear head
        weights = [f"policy.network.{part}[{layer}]" for part in ("weights", "biases")]
        is_head = layer == layers - 1
        nodes.append(("Gemm", [current, *weights], output if is_head else f"layer_{layer}", {}))
        if not is_head:
            current = f"hidden_{layer}"
            nodes.append(("Tanh", [f"layer_{layer}"], current, {}))
    if "policy.log_std" in arrays:
        constants["log_std_row"] = np.maximum(arrays["policy.log_std"], np.float32(LOG_STD_FLOOR))
        nodes += [
            ("Shape", ["mean"], "shape", {}),
            ("Expand", ["log_std_row", "shape"], "log_std", {}),
        ]
    return nodes, constants


def _inputs(trained: TrainedPolicy) -> Graph:
    """x = (s, p, y), what the network sees: normalised observation, pace, spent / limit."""
    nodes, observation = [], "observation"
    constants: dict[str, Any] = {
        "limit": np.float32(trained.account.limit),
        "spent_low": np.float32(-SPENT_CLIP),
        "spent_high": np.float32(SPENT_CLIP),
        "last_axis": np.array([1]),
    }
    if trained.statistics is not None:
        mean, squares, count = (
            trained.identity.arrays[f"statistics.{n}"] for n in ("mean", "squares", "count")
        )
        variance = squares / count if count > 1 else np.ones_like(squares)
        constants |= {
            "mean_observation": mean,
            "deviation": np.sqrt(variance + np.float32(NORMALISER["floor"])),
            "observation_low": np.float32(-NORMALISER["clip"]),
            "observation_high": np.float32(NORMALISER["clip"]),
        }
        observation = "normalised"
        nodes += [
            ("Sub", ["observation", "mean_observation"], "centred", {}),
            ("Div", ["centred", "deviation"], "standardised", {}),
            ("Clip", ["standardised", "observation_low", "observation_high"], observation, {}),
        ]
    nodes += [
        ("Div", ["spent", "limit"], "spent_limits", {}),
        ("Clip", ["spent_limits", "spent_low", "spent_high"], "spent_clipped", {}),
        ("Unsqueeze", ["pace", "last_axis"], "pace_column", {}),
    ]
    spent = "spent_clipped"
    if not np.ndim(trained.account.limit):  # one cost
        nodes.append(("Unsqueeze", [spent, "last_axis"], "spent_column", {}))
        spent = "spent_column"
    nodes.append(("Concat", [observation, "pace_column", spent], "x", {"axis": 1}))
    return nodes, constants


def _require(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise CanaryError(
            f"The ONNX format needs {module}, which is not installed; run pip install "
            '"canary-rl[onnx]".'
        ) from None
