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


def private_key(key: Any) -> Any:
    """An Ed25519 private key: the given one, or that of a PEM or OpenSSH file."""
    keys, ed25519, _ = _cryptography()
    if isinstance(key, str | Path):
        loaders = (keys.load_ssh_private_key, keys.load_pem_private_key)
        return _read_key(key, "private key without a password", loaders, password=None)
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise CanaryError(
            "sign takes an Ed25519 private key or the path of its file, not "
            f"{type(key).__name__}; make one with `ssh-keygen -t ed25519 -f FILE`."
        )
    return key


def public_key(path: str | Path) -> Any:
    """The Ed25519 public key in a PEM or OpenSSH (.pub) file."""
    keys, _, _ = _cryptography()
    return _read_key(path, "public key", (keys.load_ssh_public_key, keys.load_pem_public_key))


def _read_key(path: str | Path, what: str, loaders: tuple[Any, ...], **options: Any) -> Any:
    _, ed25519, _ = _cryptography()
    try:
        data = files.read_bytes(Path(path).expanduser(), 1 << 20)
    except (OSError, ValueError) as error:
        raise CanaryError(
            f"There is no key {str(path)!r:.80} ({files.reason_of(error)})."
        ) from None
    for load in loaders:
        with contextlib.suppress(Exception):  # their kinds differ by format and version
            key = load(data, **options)
            if isinstance(key, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey):
                return key
    raise CanaryError(f"{path} is no Ed25519 {what}, as `ssh-keygen -t ed25519 -f FILE` makes it.")


def sign(certificate: dict[str, Any], key: Any) -> dict[str, Any]:
    """The certificate with a signature of its content."""
    public, value = key.public_key().public_bytes_raw(), key.sign(content(certificate))
    return certificate | {"signature": {"public_key": _text(public), "value": _text(value)}}


def check(certificate: dict[str, Any], key: Any | None) -> tuple[list[str], str | None]:
    """What is wrong with the signature, and the fingerprint of the key that made it, if any did.
    Without a `key` to compare with, the certificate's own is used."""
    signature = certificate.get("signature")
    if signature is None:
        return ["It has no signature."] if key is not None else [], None
    _, ed25519, invalid = _cryptography()
    try:
        named, value = (base64.b64decode(signature[name]) for name in ("public_key", "value"))
        ed25519.Ed25519PublicKey.from_public_bytes(named).verify(value, content(certificate))
    except (invalid, ValueError, TypeError, KeyError):
        return ["The signature does not fit: the certificate was changed after signing."], None
    if key is not None and key.public_bytes_raw() != named:
        return [f"It was signed with another key ({fingerprint(named)})."], None
    return [], fingerprint(named)


def fingerprint(public: bytes) -> str:
    """As `ssh-keygen -lf FILE.pub` shows it."""
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (b"ssh-ed25519", public))
    return f"SHA256:{_text(hashlib.sha256(blob).digest()).rstrip('=')}"


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _cryptography() -> tuple[Any, Any, Any]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise CanaryError(
            'Signatures need cryptography; run pip install "canary-rl[sign]".'
        ) from None
    return serialization, ed25519, InvalidSignature
