"""The committed results: tables and figures can be made of them without JAX."""

import shutil
import subprocess
import sys
from pathlib import Path

from docs.figures import tables

from canary.studies import store

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.parent.name for path in (ROOT / "results").glob("*/study.json"))
REBUILD = """
import sys
from canary.cli import main
assert main(["reproduce", "--rebuild", "--quiet", "--results", sys.argv[1]]) == 0
assert "jax" not in sys.modules
"""


def test_committed_tables_are_rebuilt_without_jax(tmp_path):
    """Tables to the byte, figures by their existence: another matplotlib draws other pixels."""
    copy = tmp_path / "results"
    shutil.copytree(ROOT / "results", copy)
    made = [
        path
        for name in STUDIES
        for path in (copy / name).iterdir()
        if path.suffix in (".md", ".csv", ".png") and path.name != "README.md"
    ]
    assert len(made) >= len(STUDIES) > 0
    before = {path: path.read_bytes() for path in made}
    for path in made:
        path.unlink()
    subprocess.run([sys.executable, "-c", REBUILD, str(copy)], check=True, timeout=600)
    for path, content in before.items():
        name = path.relative_to(copy)
        assert path.exists(), name
        if path.suffix != ".png":
            assert path.read_bytes() == content, f"{name}: run `make results`"


def test_committed_rows_are_sealed_and_small():
    rows = sorted((ROOT / "results").glob("*/*/row.json"))
    assert rows
    for path in rows:
        row = store.read_row(path.parent)
        assert row.name == path.parent.name
        assert set(row.blocks["seed"].unique()) == set(row.seeds)
    size = sum(path.stat().st_size for path in (ROOT / "results").rglob("*") if path.is_file())
    assert size <= 15e6


def test_tables_in_pages_are_those_of_the_results():
    for page in tables.pages():
        assert tables.filled(page.read_text()) == page.read_text(), f"{page}: run `make results`"
