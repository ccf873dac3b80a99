"""Signatures with a key of the user's: who issued a certificate, and that it was not changed since
(Ed25519).

Keys are files that `ssh-keygen -t ed25519` or `openssl genpkey -algorithm ed25519` make. What is
signed is the whole certificate (JSON, sorted keys, no spaces) but its hash and the signature
itself. Needs `cryptography`, the extra `canary-rl[sign]`. No file is opened here: keys come as
bytes.
"""

import base64
import hashlib
from typing import Any

from canary.certification.certificate import content
from canary.errors import CanaryError

ALGORITHM = "ed25519"
FIELDS = {"algorithm", "public_key", "value"}


def load_private_key(data: bytes, name: str) -> Any:
    """The key in a PEM or OpenSSH file, or a sentence about what the file is instead."""
    serialization, ed25519, _ = _require()
    is_ssh = data.lstrip().startswith(b"-----BEGIN OPENSSH")
    load = serialization.load_ssh_private_key if is_ssh else serialization.load_pem_private_key
    try:
        key = load(data, password=None)
    except (ValueError, TypeError) as error:
        is_locked = isinstance(error, TypeError) or "password" in str(error).lower()
        reason = (
            "it is protected by a password: decrypt it first"
            if is_locked
            else "it is no private key"
        )
        raise CanaryError(f"{name} cannot be used to sign ({reason}).") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise CanaryError(
            f"{name} is not an Ed25519 key; make one with `ssh-keygen -t ed25519 -f FILE`."
        )
    return key


def load_public_key(data: bytes, name: str) -> Any:
    """The public key in a PEM or OpenSSH (.pub) file."""
    serialization, ed25519, _ = _require()
    if b"PRIVATE KEY" in data:
        raise CanaryError(f"{name} is a private key; a signature is checked with the public one.")
    load = (
        serialization.load_ssh_public_key
        if data[:4] == b"ssh-"
        else serialization.load_pem_public_key
    )
    try:
        key = load(data)
    except Exception:  # ValueError, UnsupportedAlgorithm and others, by the kind of nonsense
        raise CanaryError(
            f"{name} is no public key; it should be the .pub file beside your key."
        ) from None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise CanaryError(f"{name} is not an Ed25519 key.")
    return key


def sign(certificate: dict[str, Any], key: Any) -> dict[str, Any]:
    """The certificate with a signature of its content."""
    value = key.sign(content(certificate))
    signature = {
        "algorithm": ALGORITHM,
        "public_key": _text(_raw(key.public_key())),
        "value": _text(value),
    }
    return certificate | {"signature": signature}


def check(certificate: dict[str, Any], key: Any | None) -> tuple[list[str], str | None]:
    """What is wrong with the signature, and the fingerprint of the key that made it (None: nothing
    is signed).

    Without a `key` to compare with, the signature is held against the key that the certificate
    itself names.
    """
    signature = certificate.get("signature")
    if signature is None:
        return (
            ["It has no signature, so no key can tell who issued it."] if key is not None else []
        ), None
    _, ed25519, invalid = _require()
    try:
        if set(signature) != FIELDS or signature["algorithm"] != ALGORITHM:
            raise ValueError("unknown fields")
        named, value = (
            base64.b64decode(signature[name], validate=True) for name in ("public_key", "value")
        )
        if (_text(named), _text(value)) != (signature["public_key"], signature["value"]):
            raise ValueError("not in its shortest form")
        public = ed25519.Ed25519PublicKey.from_public_bytes(named)
        public.verify(value, content(certificate))
    except invalid:
        return [
            "The signature is not one of this text: the certificate was changed after it was "
            "signed."
        ], None
    except (ValueError, TypeError, KeyError):
        return ["The signature is malformed."], None
    if key is not None and _raw(key) != named:
        return [
            f"It was signed with another key ({fingerprint(named)}), not with "
            f"{fingerprint(_raw(key))}."
        ], None
    return [], fingerprint(named)


def fingerprint(public: bytes) -> str:
    """As OpenSSH shows it (`ssh-keygen -lf FILE.pub`)."""
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", public))
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _raw(key: Any) -> bytes:
    return key.public_bytes_raw()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _require() -> tuple[Any, Any, Any]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise CanaryError(
            "Signatures need cryptography, which is not installed; run pip install "
            '"canary-rl[sign]".'
        ) from None
    return serialization, ed25519, InvalidSignature
