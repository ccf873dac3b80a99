"""The committed results: tables and figures are made of them byte for byte, without JAX, and pages
quote them as they are."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUDIES = sorted(path.parent.name for path in (ROOT / "results").glob("*/study.json"))
REBUILD = """
import sys
from canary.cli import main
assert main(["reproduce", "--rebuild", "--quiet", "--results", sys.argv[1]]) == 0
assert "jax" not in sys.modules
"""


@pytest.fixture
def tables():
    """docs/figures/tables.py, which stands outside of every package."""
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
        path
        for name in STUDIES
        for path in (copy / name).iterdir()
        if path.suffix in (".md", ".csv", ".png")
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


def test_tables_and_numbers_in_pages_are_those_of_the_results(tables):
    for page, sentences in tables.pages().items():
        text = page.read_text()
        assert tables.filled(text, sentences) == text, (
            f"{page}: run `make results` and read what has changed"
        )


def test_a_table_is_filled_in(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    (tmp_path / "results" / "x").mkdir(parents=True)
    (tmp_path / "results" / "x" / "table.md").write_text("# X\n\n| a |\n|---|\n| 1 |\n\n- note\n")
    page = "before\n<!-- results/x/table.md -->\nold\n<!-- end -->\nafter\n"
    filled = tables.filled(page)
    assert (
        filled
        == "before\n<!-- results/x/table.md -->\n\n| a |\n|---|\n| 1 |\n\n<!-- end -->\nafter\n"
    )
    assert tables.filled(filled) == filled


def test_a_number_in_a_sentence_is_put_right_wherever_its_lines_break(tables, tmp_path):
    group = tmp_path / "x" / "a"
    group.mkdir(parents=True)
    (tmp_path / "x" / "table.csv").write_text(
        "variant,seeds,steps,safe,violation\nb,1,1,1,1\na,4,2000000,0.75,0.0123\n"
    )
    (group / "summary.json").write_text('{"seed_ids": [7, 8], "return_per_seed": [0.5, -0.25]}')
    sentence = "P {x/a violation:.3f} on {x/a safe_seeds:d} of {x/a seeds:d} seeds ({x/a steps:M}, {x/a return@8:.2f})"
    wrong = "Here P 0.5 on 4\n  of 4 seeds (1.5M, 0.1). P 0.5."
    right = "Here P 0.012 on 3\n  of 4 seeds (2M, -0.25). P 0.5."
    assert tables.corrected(wrong, sentence, tmp_path) == right
    assert tables.corrected(right, sentence, tmp_path) == right
    assert tables.corrected("at 9", "at {x/a return@least:.2f}", tmp_path) == "at -0.25"
    with pytest.raises(ValueError, match="no sentence like"):
        tables.corrected("P is small.", sentence, tmp_path)
