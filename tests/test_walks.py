"""ARCHITECTURE.md says how far it is to the constraint; this measures it."""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parent / "ARCHITECTURE.md").read_text()


def test_the_walks_are_those_of_the_architecture_page():
    # A process of its own: the tests' type checks would add calls.
    command = [sys.executable, HERE / "walks.py"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (calls, files), (_, between) = re.findall(r"(\d+) places in (\d+) files", printed)
    assert f"{calls} calls in {files} files" in PAGE
    assert f"{between} files run in between" in PAGE
    walk = printed.partition("from a cost")[0]
    assert all(f"`{file}" in PAGE for file in set(re.findall(r"^  (\S+):", walk, re.MULTILINE)))
