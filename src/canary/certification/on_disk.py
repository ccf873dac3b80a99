"""A certificate as it lies on a disk: its JSON, its page, earlier ones, and the run around it, if
there is a whole one."""

import contextlib
import importlib.metadata
import platform
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from canary.certification.page import certificate_in, render_page
from canary.errors import CanaryError
from canary.runs import files
from canary.runs.stored_states import stored_updates

JSON_NAME, PAGE_NAME = "certificate.json", "certificate.html"


def run_around(path: Path) -> tuple[Path | None, list[str]]:
    """The run in whose directory a certificate lies, or a note about what that directory lacks to
    be one.

    Published results often have the configuration and the tables of a run, but not its policies.
    """
    folder = path if path.is_dir() else path.parent
    if not (folder / "config.json").is_file():
        return None, []
    has = {
        "manifest.json": (folder / "manifest.json").is_file(),
        "checkpoints/": bool(stored_updates(folder)),
    }
    missing = [name for name, there in has.items() if not there]
    if not missing:
        return folder, []
    return None, [
        "It lies beside a config.json, but that directory is no complete run "
        f"({' and '.join(missing)} missing), so it cannot be compared with its policies."
    ]


def read(path: Path) -> dict[str, Any]:
    """The certificate in a JSON file, a page or a directory; also what its page says that the
    certificate does not."""
    path = path / JSON_NAME if path.is_dir() else path
    problems: list[str] = []
    notes: list[str] = []
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        raise CanaryError(f"There is no certificate {path}.") from None
    except (OSError, ValueError) as error:
        raise CanaryError(
            f"{path} cannot be read ({getattr(error, 'strerror', None) or error})."
        ) from None
    is_page = data.lstrip()[:1] == b"<"
    try:
        certificate = files.parse_object(certificate_in(data) if is_page else data)
    except (ValueError, RecursionError) as error:
        raise CanaryError(
            f"{path} is no certificate, or a damaged one ({str(error)[:200]})."
        ) from None
    beside = path.parent / PAGE_NAME
    if is_page:
        problems += _page(path.name, data, certificate)
    elif path.name == JSON_NAME and beside.is_file():
        problems, notes = _page_beside(beside, certificate)
    return {"path": path, "certificate": certificate, "problems": problems, "notes": notes}


def _page_beside(beside: Path, certificate: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Problems and notes about the page that lies beside a certificate."""
    try:
        data = files.read_bytes(beside)
        carried = files.parse_object(certificate_in(data))
    except (OSError, ValueError, RecursionError):
        return [
            f"{beside.name} beside it carries no certificate: it is no page of canary's, or "
            "damaged."
        ], []
    if carried != certificate:
        return [], [
            f"{beside.name} beside it is the page of another certificate "
            f"({carried.get('time')!s:.40})."
        ]
    return _page(beside.name, data, certificate), []


def _page(name: str, data: bytes, certificate: dict[str, Any]) -> list[str]:
    """What people read on a page must be what its certificate says."""
    try:
        expected = render_page(certificate).encode()
    except Exception:  # a malformed certificate, of which `verify` tells more
        return []
    made_here = certificate.get("versions", {}).get("canary") == versions().get("canary")
    if data == expected:
        return []
    reason = (
        "it was changed"
        if made_here
        else "another version of canary made it, or it was changed; read the JSON"
    )
    return [f"{name} shows something else than the certificate that it carries: {reason}."]


def save(certificate: dict[str, Any], folder: Path) -> Path | None:
    """Write the certificate and its page; returns where an earlier certificate went, if there was
    one."""
    kept = _keep(folder)
    files.write_json(folder / JSON_NAME, certificate)
    files.write_atomically(folder / PAGE_NAME, render_page(certificate).encode())
    return kept


def earlier(folder: Path) -> list[Path]:
    """The certificates in a directory, the present one included: none is ever overwritten."""
    paths = [
        path for path in folder.iterdir() if re.fullmatch(r"certificate(-[\d-]+)?\.json", path.name)
    ]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def _keep(folder: Path) -> Path | None:
    """Copy a certificate and its page to names of their own before others take their place."""
    present = folder / JSON_NAME
    if present not in earlier(folder):
        return None
    when = datetime.fromtimestamp(present.stat().st_mtime)
    number, place = 1, folder / f"certificate-{when:%Y%m%d-%H%M%S}.json"
    while place.exists():
        number += 1
        place = folder / f"certificate-{when:%Y%m%d-%H%M%S}-{number}.json"
    for source, target in ((folder / PAGE_NAME, place.with_suffix(".html")), (present, place)):
        if source.is_file() and not source.is_symlink():
            files.write_atomically(target, files.read_bytes(source))
    return place


def versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for distribution in ("canary-rl", "jax", "jaxlib", "numpy", "scipy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[distribution.removesuffix("-rl")] = importlib.metadata.version(distribution)
    return versions
