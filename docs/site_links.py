"""For the site alone: links to files of the repository outside docs/ become their paths, which the
site does not hold."""

import re

PLACES = "results|examples|src|benchmarks|ARCHITECTURE|CONTRIBUTING|CHANGELOG"
OUTSIDE = re.compile(rf"!?\[([^\]]*)\]\(((?:\.\./)+(?:{PLACES})[^)]*)\)")


def on_page_markdown(markdown: str, **_) -> str:
    return OUTSIDE.sub(lambda link: f"{link[1]} (`{link[2].replace('../', '')}`)", markdown)
