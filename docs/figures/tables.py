"""Fill the tables and numbers of README.md and docs/ from results/: `python
docs/figures/tables.py`, part of `make results`.

A page says where a table comes from, and the rows between the two comments are those of that file:

    <!-- results/table1/table.md -->
    ...
    <!-- end -->

Numbers in sentences are those of `sentences.py`. `tests/studies/test_committed.py` checks that all
are as in the results.
"""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from numbers_of_results import corrected
from sentences import SENTENCES

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(<!-- (results/[\w./-]+/table\.md) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def rows(path: Path) -> str:
    return "".join(line + "\n" for line in path.read_text().splitlines() if line.startswith("|"))


def filled(text: str, sentences: tuple[str, ...] = ()) -> str:
    """The page with every table and number as the results have it."""
    text = BLOCK.sub(lambda match: match[1] + "\n" + rows(ROOT / match[2]) + "\n" + match[4], text)
    for sentence in sentences:
        text = corrected(text, sentence, ROOT / "results")
    return text


def pages() -> dict[Path, tuple[str, ...]]:
    """Every page with the sentences in it that quote results."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {page: SENTENCES.get(page.relative_to(ROOT).as_posix(), ()) for page in found}


if __name__ == "__main__":
    for page, sentences in pages().items():
        text = page.read_text()
        try:
            right = filled(text, sentences)
        except ValueError as error:
            sys.exit(
                f"{page} has {error}; change docs/figures/sentences.py as the page was changed."
            )
        if right != text:
            page.write_text(right)
            print(page)
