"""Policies as files of numpy arrays or ONNX graphs, and their comparison with JAX.

    observation [batch, obs], pace [batch], spent [batch]  ->  logits [batch, action], or mean and log_std

The file includes the normaliser, the division by the limit and the clips. The ONNX graph is built
node by node from standard operators (opset 17) that every runtime has.
"""

import io
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import jax
import numpy as np

from canary.errors import CanaryError
from canary.exporting import numpy_policy
from canary.exporting.numpy_policy import STATISTICS
from canary.exporting.trained_policy import INPUTS, TrainedPolicy

OPSET, IR_VERSION = 17, 8  # those of ONNX 1.12, for older runtimes
LAST = np.array([1])  # the axis after the batch
TOLERANCE = 1e-5
CHECKED_INPUTS = 512

Implementation = Callable[[np.ndarray, np.ndarray, np.ndarray], dict[str, np.ndarray]]
"""observation [case, obs], pace [case], spent [case] (several costs: [case, cost]) -> outputs
[case, action]."""


def numpy_bytes(trained: TrainedPolicy) -> bytes:
    """An .npz file of plain arrays and JSON metadata for `numpy_policy.load`."""
    arrays, known = trained.identity.arrays, trained.metadata
    text = json.dumps(known | {"file_sha256": numpy_policy.digest(known, arrays)}, allow_nan=False)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, metadata=np.frombuffer(text.encode(), np.uint8), **arrays)  # type: ignore
    return buffer.getvalue()


def numpy_implementation(data: bytes) -> Implementation:
    return numpy_policy.load(io.BytesIO(data)).outputs


class Graph:
    """Nodes in order, and their constants."""

    def __init__(self, onnx: Any):
        self._onnx, self.nodes, self.constants = onnx, [], []

    def add(
        self, kind: str, *inputs: str | np.generic | np.ndarray, output: str = "", **attributes: Any
    ) -> str:
        """Append an operator on tensors (names) and constants (arrays). Returns the output's name."""
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
    shapes |= {"observation": (trained.environment.observation_size,), "pace": ()}
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
    """x = (s, p, y), the network's input: normalised observation, pace, spent / limit."""
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
    if (
        reads < trained.environment.observation_size + trained.account.size
    ):  # a network without the account
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


class Format(NamedTuple):
    ending: str
    encode: Callable[[TrainedPolicy], bytes]
    implementation: Callable[[bytes], Implementation]


FORMATS = {
    "onnx": Format(".onnx", onnx_bytes, onnx_implementation),
    "numpy": Format(".npz", numpy_bytes, numpy_implementation),
}


def random_inputs(trained: TrainedPolicy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations with the normaliser's moments (or standard normal), and accounts on both sides
    of every clip."""
    random, count = np.random.default_rng(0), CHECKED_INPUTS
    observation = random.standard_normal((count, trained.environment.observation_size))
    if (statistics := trained.statistics) is not None and statistics.count > 1:
        deviation = np.sqrt(np.asarray(statistics.squares, float) / float(statistics.count))
        # Every eighth case is about ten deviations from the mean, where the normaliser clips
        observation *= deviation * np.where(np.arange(count) % 8, 1.0, 10.0)[:, None]
        observation += np.asarray(statistics.mean)
    near, far = random.uniform(0, 1.5, count), random.uniform(-15, 15, count)
    spent = np.where(np.arange(count) % 4, near, far)
    limit = np.asarray(trained.account.limit, float)
    spent = spent * limit if limit.ndim == 0 else random.permuted(np.outer(spent, limit), axis=0)
    varies = trained.account.clock is not None or trained.account.cost_discount < 1
    pace = random.uniform(0, 1, count) if varies else np.ones(count)
    return observation.astype(np.float32), pace.astype(np.float32), spent.astype(np.float32)


def check_parity(trained: TrainedPolicy, implementation: Implementation) -> dict[str, Any]:
    """The largest differences between an implementation and JAX on random inputs. Raises if action
    distributions differ by more than 1e-5.

    `max_abs_difference` compares probabilities or, relative to max(1, |value|), means and log
    deviations. `max_output_difference` compares the raw outputs of the networks; float32 resolves
    about 1e-6 of their size.
    """
    inputs = random_inputs(trained)
    with jax.default_matmul_precision("highest"):
        truth = jax.jit(trained.distribution)(*inputs)
    found, far, raw = implementation(*inputs), 0.0, 0.0
    for name in trained.outputs:
        one, other = np.asarray(getattr(truth, name)), found[name]
        raw = max(raw, float(np.abs(one - other).max()))
        if name == "logits":
            one, other = map(numpy_policy.probabilities, (one, other))
        far = max(far, float((np.abs(one - other) / np.maximum(1, np.abs(one))).max()))
    if not far <= TOLERANCE:
        raise CanaryError(
            f"The exported policy differs from the trained one by {far:.2g}, so nothing was written; "
            "try another format, and report this."
        )
    return {
        "checked_inputs": len(inputs[0]),
        "max_abs_difference": far,
        "max_output_difference": raw,
    }
