"""Which code makes the numbers of a run: the same fingerprint, the same numbers on the same machine."""

import hashlib
from pathlib import Path
from typing import Any

MATHEMATICS = (
    "types.py",
    "numerics",
    "environments",
    "networks.py",
    "rollout.py",
    "algorithms",
    "training.py",
)


def code_fingerprint() -> str:
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in MATHEMATICS:
        for path in sorted((root / name).rglob("*.py")) if (root / name).is_dir() else [root / name]:
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def codes_of(manifest: dict[str, Any]) -> str | None:
    """The fingerprints of all code that trained a run, in their order; None if its first is not known."""
    return " ".join(map(str, manifest["code"])) if isinstance(manifest.get("code"), list) else None


def with_this_code(manifest: dict[str, Any]) -> dict[str, list[str]]:
    """The entry of a manifest whose run goes on with this code; none if nobody knows with which it began."""
    codes, this = manifest.get("code"), code_fingerprint()
    if not isinstance(codes, list):
        return {}
    return {"code": codes if codes and codes[-1] == this else [*codes, this]}
