"""Sign certificates with Ed25519 keys, which `ssh-keygen -t ed25519` or `openssl genpkey -algorithm
ed25519` makes. Needs `cryptography` (canary-rl[sign])."""

import base64
import contextlib
import hashlib
from pathlib import Path
from typing import Any

from canary.certification.certificate import canonical
from canary.errors import CanaryError

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
except ImportError:
    raise CanaryError('Signatures need cryptography; run pip install "canary-rl[sign]".') from None


def read_key(key: Any, kind: str) -> Any:
    """A `private` or `public` Ed25519 key: the given one, or the one in a PEM or OpenSSH file."""
    if isinstance(key, str | Path):
        try:
            data = Path(key).expanduser().read_bytes()
        except (OSError, ValueError):
            raise CanaryError(f"There is no key {str(key)!r:.80}, or it cannot be read.") from None
        without = {"password": None} if kind == "private" else {}
        for form in ("ssh", "pem"):
            with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
                key = getattr(serialization, f"load_{form}_{kind}_key")(data, **without)
    if not isinstance(key, getattr(ed25519, f"Ed25519{kind.title()}Key")):
        raise CanaryError(
            f"This is no Ed25519 {kind} key without a password, nor the path of one; "
            "`ssh-keygen -t ed25519 -f FILE` makes one."
        )
    return key


def sign(certificate: dict[str, Any], key: ed25519.Ed25519PrivateKey) -> dict[str, Any]:
    """The certificate with a signature of its content."""
    public, value = key.public_key().public_bytes_raw(), key.sign(canonical(certificate))
    return certificate | {"signature": {"public_key": _text(public), "value": _text(value)}}


def check(
    certificate: dict[str, Any], key: ed25519.Ed25519PublicKey | None
) -> tuple[list[str], str | None]:
    """Problems of the signature, and the fingerprint of the key that made it, or None. Without a
    `key` to compare with, the certificate's own key is used."""
    try:
        content = dict(certificate)
        signature = content.pop("signature")
        named, value = (base64.b64decode(signature[name]) for name in ("public_key", "value"))
        ed25519.Ed25519PublicKey.from_public_bytes(named).verify(value, canonical(content))
    except (InvalidSignature, ValueError, TypeError, KeyError):
        return ["It has no signature that fits, or was changed after signing."], None
    # The form of `ssh-keygen -lf FILE.pub`
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", named))
    fingerprint = f"SHA256:{_text(hashlib.sha256(blob).digest()).rstrip('=')}"
    if key is not None and key.public_bytes_raw() != named:
        return [f"It was signed with another key ({fingerprint})."], None
    return [], fingerprint


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
