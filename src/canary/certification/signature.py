"""Who issued a certificate: an Ed25519 signature of its content, with a key that `ssh-keygen -t
ed25519` or `openssl genpkey -algorithm ed25519` makes. Needs `cryptography` (canary-rl[sign])."""

import base64
import contextlib
import hashlib
from pathlib import Path
from typing import Any

from canary.certification.certificate import content
from canary.errors import CanaryError
from canary.runs import files

try:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
except ImportError:
    raise CanaryError('Signatures need cryptography; run pip install "canary-rl[sign]".') from None


def private_key(key: Any) -> Ed25519PrivateKey:
    """An Ed25519 private key: the given one, or that of a PEM or OpenSSH file."""
    return _key(key, Ed25519PrivateKey, "private", password=None)


def public_key(path: str | Path) -> Ed25519PublicKey:
    """The Ed25519 public key in a PEM or OpenSSH (.pub) file."""
    return _key(path, Ed25519PublicKey, "public")


def _key(key: Any, kind: type, name: str, **options: Any) -> Any:
    if isinstance(key, str | Path):
        try:
            data = files.read_bytes(Path(key).expanduser())
        except (OSError, ValueError) as error:
            reason = files.reason_of(error)
            raise CanaryError(f"There is no key {str(key)!r:.80} ({reason}).") from None
        for form in ("ssh", "pem"):
            with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
                key = getattr(serialization, f"load_{form}_{name}_key")(data, **options)
    if not isinstance(key, kind):
        raise CanaryError(
            f"This is no Ed25519 {name} key, nor the path of its file, without a password, as "
            "`ssh-keygen -t ed25519 -f FILE` makes it."
        )
    return key


def sign(certificate: dict[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The certificate with a signature of its content."""
    public, value = key.public_key().public_bytes_raw(), key.sign(content(certificate))
    return certificate | {"signature": {"public_key": _text(public), "value": _text(value)}}


def check(
    certificate: dict[str, Any], key: Ed25519PublicKey | None
) -> tuple[list[str], str | None]:
    """What is wrong with the signature, and the fingerprint of the key that made it, if any did.
    Without a `key` to compare with, the certificate's own is used."""
    try:
        signature = certificate["signature"]
        named, value = (base64.b64decode(signature[name]) for name in ("public_key", "value"))
        Ed25519PublicKey.from_public_bytes(named).verify(value, content(certificate))
    except (InvalidSignature, ValueError, TypeError, KeyError):
        return ["It has no signature that fits, or was changed after signing."], None
    # As `ssh-keygen -lf FILE.pub` shows it
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", named))
    fingerprint = f"SHA256:{_text(hashlib.sha256(blob).digest()).rstrip('=')}"
    if key is not None and key.public_bytes_raw() != named:
        return [f"It was signed with another key ({fingerprint})."], None
    return [], fingerprint


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
