"""The committed results: tables and figures are made of them byte for byte, without JAX, and pages quote them as they are."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.parent.name for path in (ROOT / "results").glob("*/study.json"))
REBUILD = """
import sys
from canary.cli import main
assert main(["reproduce", "--rebuild", "--quiet", "--results", sys.argv[1]]) == 0
assert "jax" not in sys.modules
"""


def table_filler():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "figures" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_tables_and_figures_are_rebuilt_byte_for_byte_without_jax(tmp_path):
    copy = tmp_path / "results"
    shutil.copytree(ROOT / "results", copy, ignore=shutil.ignore_patterns("before-shaping"))
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    made = [
        path for name in STUDIES for path in (copy / name).iterdir() if path.suffix in (".md", ".csv", ".png")
    ]
    made = [path for path in made if path.name != "README.md"]
    assert len(made) >= 2 * len(STUDIES) > 0
    for path in made:
        path.unlink()
    subprocess.run([sys.executable, "-c", REBUILD, str(copy)], check=True, timeout=120)
    for path, content in before.items():
        assert path.read_bytes() == content, f"{path.relative_to(copy)}: run `make results`"
    assert before.keys() == {path for path in copy.rglob("*") if path.is_file()}
    for name in STUDIES:
        assert "/tmp" not in (copy / name / "table.md").read_text()


def test_tables_in_pages_are_those_of_the_results():
    tables = table_filler()
    for page in tables.pages():
        assert tables.filled(page.read_text()) == page.read_text(), (
            f"{page}: run python docs/figures/tables.py"
        )


def test_a_table_is_filled_in(tmp_path, monkeypatch):
    tables = table_filler()
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    (tmp_path / "results" / "x").mkdir(parents=True)
    (tmp_path / "results" / "x" / "table.md").write_text("# X\n\n| a |\n|---|\n| 1 |\n\n- note\n")
    page = "before\n<!-- results/x/table.md -->\nold\n<!-- end -->\nafter\n"
    filled = tables.filled(page)
    assert filled == "before\n<!-- results/x/table.md -->\n\n| a |\n|---|\n| 1 |\n\n<!-- end -->\nafter\n"
    assert tables.filled(filled) == filled
