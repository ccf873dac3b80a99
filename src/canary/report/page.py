"""The page as text. Its figures are drawn by a short script of our own as SVG.

A plotting library would put three to four megabytes of script into every page; this is ten kilobytes, works offline,
and has what the page needs: lines with bands, bars, stacked shares, a readout under the pointer.
"""

import json
from importlib import resources
from typing import Any


def render(title: str, subjects: list[dict[str, Any]], problems: list[str], command: str) -> str:
    """One HTML document without any reference to another file or address."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("canary.report", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    files = resources.files("canary.report")
    return pages.get_template("report.html.jinja").render(
        title=title,
        command=command,
        problems=problems,
        subjects=subjects,
        style=files.joinpath("report.css").read_text(),
        script=files.joinpath("report.js").read_text(),
        data=embedded(subjects),
    )


def embedded(value: Any) -> str:
    """JSON that may stand inside a script element: no text in it can end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
