"""The ONNX format: one graph from raw observation and raw spent cost to the action distribution.

    observation [batch, obs], pace [batch], spent [batch]  ->  logits [batch, action], or mean and log_std

The graph is built node by node from standard operators (opset 17) that every runtime has.
"""

import json
from importlib import import_module
from typing import Any

import numpy as np

from canary.errors import CanaryError
from canary.export.formats import Implementation
from canary.export.numpy_policy import STATISTICS
from canary.export.trained_policy import INPUTS, TrainedPolicy

OPSET, IR_VERSION = 17, 8  # of ONNX 1.12, so that older runtimes can read it
LAST = np.array([1])  # the axis after the batch


class Graph:
    """Nodes in order, and the constants that they use."""

    def __init__(self, onnx: Any):
        self._onnx, self.nodes, self.constants = onnx, [], []

    def add(
        self, kind: str, *inputs: str | np.generic | np.ndarray, output: str = "", **attributes: Any
    ) -> str:
        """Append an operator on tensors (names) and constants (arrays); returns its output's
        name."""
        output, names = output or f"{kind}_{len(self.nodes)}", []
        for place, value in enumerate(inputs):
            if not isinstance(value, str):
                self.constants.append(
                    self._onnx.numpy_helper.from_array(np.asarray(value), f"{output}.{place}")
                )
                value = f"{output}.{place}"
            names.append(value)
        self.nodes.append(self._onnx.helper.make_node(kind, names, [output], **attributes))
        return output


def onnx_bytes(trained: TrainedPolicy) -> bytes:
    """The serialised model; `metadata_props["canary"]` holds the metadata as JSON."""
    onnx = _require("onnx")
    helper, real, graph = onnx.helper, onnx.TensorProto.FLOAT, Graph(onnx)
    _add_network(graph, _add_inputs(graph, trained), trained)
    shapes = dict.fromkeys(trained.outputs, trained.policy.network.biases[-1].shape)
    shapes |= {"observation": (trained.place.observation_size,), "pace": ()}
    shapes["spent"] = np.shape(trained.account.limit)
    tensors = {
        name: helper.make_tensor_value_info(name, real, ["batch", *shape])
        for name, shape in shapes.items()
    }
    whole = helper.make_graph(
        graph.nodes,
        "canary_policy",
        [tensors[name] for name in INPUTS],
        [tensors[name] for name in trained.outputs],
        graph.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        whole, opset_imports=opsets, ir_version=IR_VERSION, producer_name="canary"
    )
    helper.set_model_props(model, {"canary": json.dumps(trained.metadata, allow_nan=False)})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _add_inputs(graph: Graph, trained: TrainedPolicy) -> str:
    """x = (s, p, y), what the network sees: normalised observation, pace, spent / limit."""
    observation, known = "observation", trained.metadata
    if (normaliser := known["normaliser"]) is not None:
        clip, floor = np.float32(normaliser["clip"]), np.float32(normaliser["floor"])
        mean, squares, count = (trained.identity.arrays[name] for name in STATISTICS)
        variance = squares / count if count > 1 else np.ones_like(squares)
        centred = graph.add("Sub", observation, mean)
        scaled = graph.add("Div", centred, np.sqrt(variance + floor))
        observation = graph.add("Clip", scaled, -clip, clip)
    spent_clip = np.float32(known["spent_clip"])
    limits = graph.add("Div", "spent", np.float32(trained.account.limit))
    spent = graph.add("Clip", limits, -spent_clip, spent_clip)
    if not np.ndim(trained.account.limit):  # one cost
        spent = graph.add("Unsqueeze", spent, LAST)
    return graph.add("Concat", observation, graph.add("Unsqueeze", "pace", LAST), spent, axis=1)


def _add_network(graph: Graph, x: str, trained: TrainedPolicy) -> None:
    """A tanh network with a linear head."""
    arrays, known = trained.identity.arrays, trained.metadata
    layers, budgets = known["layers"], known["budgets"]
    reads = len(arrays["policy.network.weights[0]"]) // (1 + budgets)
    if reads < trained.place.observation_size + trained.account.size:  # it does not see its account
        x = graph.add("Slice", x, np.array([0]), np.array([reads]), LAST)
    if budgets:
        zero, one, scale = np.float32(0), np.float32(1), np.float32(known["spent_scale"])
        products = [x]
        for at in range(reads - budgets, reads):
            spent = graph.add("Slice", x, np.array([at]), np.array([at + 1]), LAST)
            share = graph.add("Mul", graph.add("Clip", spent, zero, one), scale)
            products.append(graph.add("Mul", x, share))
        x = graph.add("Concat", *products, axis=1)
    for layer in range(layers):
        weights = (arrays[f"policy.network.{part}[{layer}]"] for part in ("weights", "biases"))
        if layer == layers - 1:
            x = graph.add("Gemm", x, *weights, output=trained.outputs[0])
        else:
            x = graph.add("Tanh", graph.add("Gemm", x, *weights))
    if "policy.log_std" in arrays:
        log_std = np.maximum(arrays["policy.log_std"], np.float32(known["log_std_floor"]))
        graph.add("Expand", log_std, graph.add("Shape", x), output="log_std")


def onnx_implementation(data: bytes) -> Implementation:
    """The model in onnxruntime."""
    runtime = _require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(*inputs: np.ndarray) -> dict[str, np.ndarray]:
        found = session.run(names, dict(zip(INPUTS, inputs, strict=True)))
        return dict(zip(names, found, strict=True))

    return run


def _require(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise CanaryError(
            f'The ONNX format needs {module}: run `pip install "canary-rl[onnx]"`.'
        ) from None
