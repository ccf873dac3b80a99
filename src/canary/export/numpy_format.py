"""The numpy format: an .npz of plain arrays and JSON metadata, played by `numpy_policy` without
JAX."""

import io
import json

import numpy as np

from canary.export import numpy_policy
from canary.export.portable import Parity, PortablePolicy, metadata
from canary.export.portable import check_parity as check


def encode(portable: PortablePolicy) -> bytes:
    """The artefact; arrays carry the names that the policy's digest is made of."""
    arrays, known = portable.identity.arrays, metadata(portable)
    text = json.dumps(known | {"file_sha256": numpy_policy.digest(known, arrays)}, allow_nan=False)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, metadata=np.frombuffer(text.encode(), np.uint8), **arrays)  # type: ignore
    return buffer.getvalue()


def check_parity(portable: PortablePolicy, data: bytes) -> Parity:
    """Read the artefact back as a user would, and compare it with JAX."""
    policy = numpy_policy.load(io.BytesIO(data))
    return check(portable, policy.outputs)
