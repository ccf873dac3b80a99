"""The numpy format: an .npz of plain arrays and JSON metadata, played by `numpy_policy` without JAX."""

import io
import json

import numpy as np

from canary.export import numpy_policy
from canary.export.portable import Parity, PortablePolicy, critic_arrays, hashed_arrays, metadata
from canary.export.portable import check_parity as check


def encode(portable: PortablePolicy) -> bytes:
    """The artefact; arrays carry the names that the policy's hash is made of."""
    text = json.dumps(metadata(portable), allow_nan=False)
    arrays = hashed_arrays(portable) | critic_arrays(portable)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, metadata=np.frombuffer(text.encode(), np.uint8), **arrays)  # type: ignore
    return buffer.getvalue()


def check_parity(portable: PortablePolicy, data: bytes) -> Parity:
    """Read the artefact back as a user would, and compare it with JAX."""
    policy = numpy_policy.load(io.BytesIO(data))
    return check(portable, policy.outputs)
