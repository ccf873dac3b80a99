"""A certificate as it lies on a disk: one of another version, one in a directory that is no run,
one with a name that lies."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from canary.certification.certificate import content_hash
from canary.certification.check import verify_file
from canary.certification.page import certificate_in, render_page
from canary.cli.main import main
from canary.errors import CanaryError
from certification.test_certificate import FIXED, edited


def written(folder: Path, certificate: dict[str, Any]) -> Path:
    path = folder / "certificate.json"
    path.write_text(json.dumps(certificate))
    return path


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            1,
            "which an earlier version of canary wrote .* check it with the version that made it .* "
            "canary certify RUN",
        ),
        (5, "of a newer version of canary .*: update canary"),
        ("4", "which canary never wrote"),
        (4.0, "which canary never wrote"),
        (True, "which canary never wrote"),
        (0, "which canary never wrote"),
    ],
)
def test_a_format_that_is_not_read_is_neither_valid_nor_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: Any, words: str
):
    path = written(tmp_path, edited(FIXED, ("format",), found, rehash=True))
    with pytest.raises(CanaryError, match=f"was not checked.*{words}"):
        verify_file(path)
    assert main(["certify", "--verify", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1


def test_a_directory_without_the_policies_is_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = written(tmp_path, FIXED)
    (tmp_path / "config.json").write_text("{}")
    result = verify_file(path)
    assert (result["valid"], result["level"]) == (True, "consistent")
    assert "manifest.json and checkpoints/ missing" in result["notes"][0]
    assert main(["certify", "--verify", str(tmp_path)]) == 0
    assert "no complete run" in capsys.readouterr().out
    with pytest.raises(CanaryError, match=r"needs the run.*manifest.json and checkpoints/ missing"):
        verify_file(path, replay=True)


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("results/**/certificate*.json")), ids=lambda path: path.parent.name
)
def test_the_documentation_says_how_far_a_committed_certificate_can_be_checked(path: Path):
    row = rf"\| {path.relative_to(ROOT)} \| {json.loads(path.read_text())['format']} \| (not read|\w+)"
    said = re.search(row, (ROOT / "docs" / "certification.md").read_text())
    assert said is not None, f"docs/certification.md has no row for it: {row}"
    if said[1] == "not read":
        with pytest.raises(CanaryError, match="was not checked"):
            verify_file(path)
    else:
        found = verify_file(path)
        assert (found["valid"], found["level"]) == (True, said[1])


def test_a_name_cannot_turn_the_words_of_the_page_around():
    origin = FIXED["origin"] | {"run": "good\u202eDEIFSITAS\u200b"}
    certificate = FIXED | {"origin": origin}
    certificate["sha256"] = content_hash(certificate)
    page = render_page(certificate)
    assert "\u202e" not in page
    assert "\u200b" not in page
    assert "good\\u202eDEIFSITAS\\u200b" in page
    assert json.loads(certificate_in(page.encode())) == certificate
