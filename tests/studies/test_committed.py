"""The committed results: their tables are made of them byte for byte, without JAX, and pages quote them as they are."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.parent.name for path in (ROOT / "results").glob("*/study.json"))
REBUILD = """
import sys
from pathlib import Path
from canary.studies.views import save_views
for name in sys.argv[2:]:
    save_views(Path(sys.argv[1]) / name)
assert "jax" not in sys.modules
"""


def table_filler():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "figures" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_committed_tables_are_rebuilt_byte_for_byte_without_jax(tmp_path):
    copy = tmp_path / "results"
    shutil.copytree(ROOT / "results", copy, ignore=shutil.ignore_patterns("before-shaping"))
    tables = [path for name in STUDIES for path in (copy / name).glob("table.*")]
    assert len(tables) == 2 * len(STUDIES) > 0
    before = {path: path.read_bytes() for path in tables}
    for path in tables:
        path.unlink()
    subprocess.run([sys.executable, "-c", REBUILD, str(copy), *STUDIES], check=True, timeout=120)
    for path, text in before.items():
        assert path.read_bytes() == text, path
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
