"""Signatures with keys that OpenSSL and OpenSSH make; any change breaks them."""

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from canary.certification import signature
from canary.errors import CanaryError

KEY = ed25519.Ed25519PrivateKey.generate()
CONTENT: dict[str, Any] = {"verdict": "SATISFIED", "limit": 5.5}
SIGNED = signature.sign(CONTENT, KEY)
PEM, SSH = serialization.Encoding.PEM, serialization.Encoding.OpenSSH


def private(key: Any, kind: str = "PKCS8", password: bytes | None = None) -> bytes:
    lock = serialization.NoEncryption()
    if password:
        lock = serialization.BestAvailableEncryption(password)
    return key.private_bytes(PEM, getattr(serialization.PrivateFormat, kind), lock)


def public(key: Any, encoding: Any = PEM) -> bytes:
    kind = "OpenSSH" if encoding is SSH else "SubjectPublicKeyInfo"
    return key.public_key().public_bytes(encoding, getattr(serialization.PublicFormat, kind))


def test_a_signature_names_its_key_and_breaks_with_the_text():
    problems, who = signature.check(SIGNED, KEY.public_key())
    assert problems == []
    assert signature.check(SIGNED, None) == ([], who)
    assert "no signature" in signature.check(CONTENT, KEY.public_key())[0][0]
    for forged in (
        SIGNED | {"limit": 5.0},
        SIGNED | {"signature": SIGNED["signature"] | {"value": "AAAA"}},
        SIGNED | {"signature": {}},
        SIGNED | {"signature": "me"},
    ):
        problems, who = signature.check(forged, KEY.public_key())
        assert "no signature that fits" in problems[0]
        assert who is None
    other = ed25519.Ed25519PrivateKey.generate()
    problems, _ = signature.check(signature.sign(CONTENT, other), KEY.public_key())
    assert "another key" in problems[0]


def test_keys_are_read_from_files_of_both_formats(tmp_path: Path):
    path = tmp_path / "key"
    for data in (private(KEY), private(KEY, "OpenSSH")):
        path.write_bytes(data)
        assert signature.sign(CONTENT, signature.read_key(str(path), "private")) == SIGNED
    for data in (public(KEY), public(KEY, SSH), public(KEY, SSH) + b" me@home"):
        path.write_bytes(data)
        assert signature.check(SIGNED, signature.read_key(path, "public"))[0] == []


def test_what_is_no_key_is_a_sentence(tmp_path: Path):
    path, other = tmp_path / "key", rsa.generate_private_key(65537, 2048)
    for kind, data in (
        ("private", b""), ("private", private(KEY, password=b"secret")), ("private", private(other)),
        ("public", b"ssh-ed25519 nonsense"), ("public", private(KEY)), ("public", public(other)),
    ):  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(CanaryError, match=f"no Ed25519 {kind} key"):
            signature.read_key(path, kind)
