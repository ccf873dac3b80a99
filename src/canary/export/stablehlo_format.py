"""The StableHLO format: the policy as a compiler's input, weights included.

A zip archive with three members:

    policy.jax       for JAX on CPU, CUDA, TPU, any batch size: `jax.export.deserialize(bytearray(...)).call`
    policy.mlirbc    for other compilers: a StableHLO module in portable bytecode, one observation at a time
    metadata.json    limit, epsilon, cost discount, environment, action space, hash, ...

The function takes observation [batch, obs], discount [batch] and spent [batch] and returns a
dictionary of outputs; the module takes and returns the same arrays in this order, with batch = 1.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from canary.errors import CanaryError
from canary.export.portable import Outputs, Parity, PortablePolicy, metadata, respond
from canary.export.portable import check_parity as check

FUNCTION, MODULE, METADATA = "policy.jax", "policy.mlirbc", "metadata.json"
PLATFORMS = ("cpu", "cuda", "tpu")


def encode(portable: PortablePolicy) -> bytes:
    """The archive."""
    (batch,) = export.symbolic_shape("batch")
    module = _export(portable, 1, ("cpu",)).mlir_module_serialized
    members = {
        FUNCTION: bytes(_export(portable, batch, PLATFORMS).serialize()),
        MODULE: module,
        METADATA: json.dumps(metadata(portable), indent=2, allow_nan=False).encode(),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            # A ZipInfo of its own has no clock: the same policy gives the same bytes.
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _export(portable: PortablePolicy, batch: Any, platforms: tuple[str, ...]) -> export.Exported:
    def shaped(*sizes: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((batch, *sizes), jnp.float32)

    def policy(*inputs: jax.Array) -> dict[str, jax.Array]:
        return respond(portable, *inputs)

    # Accelerators would round the weights.
    with _without_source_locations(), jax.default_matmul_precision("highest"):
        exported = export.export(jax.jit(policy), platforms=platforms)
        return exported(shaped(portable.observation_size), shaped(), shaped())


@contextmanager
def _without_source_locations() -> Iterator[None]:
    """An artefact should not carry the paths of the machine that made it."""
    name = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)


def load(data: bytes) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function of an archive, and its metadata."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            function, text = archive.read(FUNCTION), archive.read(METADATA)
        return export.deserialize(bytearray(function)).call, json.loads(text)
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise CanaryError(
            f"This is not an intact StableHLO policy ({error}); export it again."
        ) from error


def check_parity(portable: PortablePolicy, data: bytes) -> Parity:
    """Read the archive back and compare its function with JAX."""
    call, _ = load(data)

    def run(observation: np.ndarray, discount: np.ndarray, spent: np.ndarray) -> Outputs:
        return {
            name: np.asarray(value) for name, value in call(observation, discount, spent).items()
        }

    return check(portable, run)
