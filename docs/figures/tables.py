"""Fill the tables of README.md and docs/ from results/: `python docs/figures/tables.py`, part of `make
results`.

A page names the file that a table comes from; the lines between the two comments are its rows:

    <!-- results/table1/table.md -->
    ...
    <!-- end -->
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- (results/[\w./-]+/table\.md) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """The page with every table as the results have it."""
    return BLOCK.sub(lambda match: match[1] + "\n" + _rows(ROOT / match[2]) + "\n" + match[4], text)


def _rows(path: Path) -> str:
    return "".join(line + "\n" for line in path.read_text().splitlines() if line.startswith("|"))


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        text = page.read_text()
        if filled(text) != text:
            page.write_text(filled(text))
            print(page)
