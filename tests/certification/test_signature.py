"""Signatures: made with keys that OpenSSL and OpenSSH make, and broken by any change."""

import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from canary.certification import signature
from canary.certification.verification import verify
from canary.errors import CanaryError
from certification.test_certificate import FIXED, another, edited, leaves

KEY = ed25519.Ed25519PrivateKey.generate()
SIGNED = signature.sign(FIXED, KEY)


def pem(key, password: bytes | None = None) -> bytes:
    lock = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


def public(
    key, encoding=serialization.Encoding.PEM, kind=serialization.PublicFormat.SubjectPublicKeyInfo
) -> bytes:
    return key.public_key().public_bytes(encoding, kind)


def test_a_signed_certificate_is_still_a_certificate():
    assert verify(SIGNED) == []
    problems, who = signature.check(SIGNED, KEY.public_key())
    assert problems == []
    assert who is not None
    assert signature.check(SIGNED, None) == ([], who)
    assert signature.check(FIXED, None) == ([], None)
    assert "no signature" in signature.check(FIXED, KEY.public_key())[0][0]


def test_every_change_breaks_it():
    for path, value in leaves(SIGNED):
        if path[0] == "sha256":
            continue
        forged = edited(SIGNED, path, another(value), rehash=True)
        problems, who = signature.check(forged, KEY.public_key())
        assert problems, path
        assert who is None


def test_another_key_is_named():
    other = ed25519.Ed25519PrivateKey.generate()
    problems, _ = signature.check(signature.sign(FIXED, other), KEY.public_key())
    assert "signed with another key" in problems[0]


def test_keys_are_read_in_both_formats():
    ssh = KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    for data in (pem(KEY), ssh):
        assert (
            signature.check(signature.sign(FIXED, signature.load_private_key(data, "key")), None)[0]
            == []
        )
    line = public(KEY, serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    for data in (public(KEY), line, line + b" me@home"):
        assert signature.check(SIGNED, signature.load_public_key(data, "key.pub"))[0] == []


def test_what_is_no_key_is_a_sentence():
    other = rsa.generate_private_key(65537, 2048)
    for data, words in (
        (b"", "no private key"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nx", "no private key"),
        (pem(KEY, b"secret"), "password"),
        (pem(other), "not an Ed25519 key"),
        (public(KEY), "no private key"),
    ):
        with pytest.raises(CanaryError, match=words):
            signature.load_private_key(data, "mine.pem")
    for data, words in (
        (b"ssh-ed25519 nonsense", "no public key"),
        (b"\0", "no public key"),
        (pem(KEY), "is a private key"),
        (public(other), "not an Ed25519 key"),
    ):
        with pytest.raises(CanaryError, match=words):
            signature.load_public_key(data, "mine.pub")


def test_the_fingerprint_is_that_of_openssh(tmp_path: Path):
    line = public(KEY, serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (tmp_path / "key.pub").write_bytes(line + b"\n")
    try:
        shown = subprocess.run(
            ["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("there is no ssh-keygen here")
    assert (signature.check(SIGNED, None)[1] or "nothing") in shown.stdout
