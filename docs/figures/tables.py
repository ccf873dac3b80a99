"""Fill the tables of README.md and docs/ from results/: `python docs/figures/tables.py`.

A page says where a table comes from, and the rows between the two comments are those of that file:

    <!-- results/table1/table.md -->
    ...
    <!-- end -->

`tests/studies/test_committed.py` checks that they still are.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- (results/[\w./-]+/table\.md) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def rows(path: Path) -> str:
    return "".join(line + "\n" for line in path.read_text().splitlines() if line.startswith("|"))


def filled(text: str) -> str:
    """The page with every table as its file has it."""
    return BLOCK.sub(lambda match: match[1] + "\n" + rows(ROOT / match[2]) + "\n" + match[4], text)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


if __name__ == "__main__":
    for page in pages():
        text = page.read_text()
        if filled(text) != text:
            page.write_text(filled(text))
            print(page)
