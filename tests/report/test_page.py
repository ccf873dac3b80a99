"""The page in a real browser: it draws, its controls work, nothing is loaded or logged, and names
are text."""

import json
import re
import shutil
import subprocess

import pytest

from canary.cli import main
from canary.errors import CanaryError
from canary.report.gather import _measured
from canary.report.run import exact_frontier, make_report
from canary.runs import directory
from report.stored import add_group, add_run, add_study
from runs.untrained_runs import untrained_run

EVIL = "<script>alert(1)</script>"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here; apt-get install chromium"
)

# Uses the controls of the page as a person would and writes what it sees into the page.
PROBE = """
<script>
const seen = {};
const count = selector => document.querySelectorAll(selector).length;
const change = (id, set) => { const e = document.getElementById(id); set(e); e.dispatchEvent(new Event("change")); };
seen.figures = count("figure svg"); seen.seedLines = count("path.seed"); seen.phi = count("path.phi");
seen.titles = [...document.querySelectorAll("figure h3")].map(e => e.textContent);
seen.keys = [...document.querySelectorAll(".key span")].map(e => e.textContent);
seen.onLines = [...document.querySelectorAll("svg .note")].map(e => e.textContent).filter(text => text);
const drawn = [...document.querySelectorAll("path")].map(e => e.getAttribute("d"));
seen.empty = drawn.filter(d => !d || d.includes("NaN")).length;
change("seeds", e => e.checked = false); seen.withoutSeeds = count("path.seed");
const before = document.querySelector("main").innerHTML;
change("log", e => e.checked = false); seen.logChanges = before !== document.querySelector("main").innerHTML;
seen.rows = [...document.querySelectorAll("#summary tbody tr")].map(e => e.firstChild.textContent);
document.querySelectorAll("#summary tbody tr")[1].click();
seen.chosen = document.getElementById("subject").value; seen.marked = document.querySelectorAll("tr.chosen").length;
const svg = document.querySelector("figure svg"), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 20 }));
seen.readout = document.querySelector(".readout").textContent;
seen.overflow = document.documentElement.scrollWidth - innerWidth;
seen.settings = count("#configuration tr");
change("log", e => e.checked = true); // of the second row, one of whose final policies never violated
seen.captions = [...document.querySelectorAll("figcaption")].map(e => e.textContent);
seen.head = [...document.querySelectorAll("#summary th")].map(e => e.textContent);
seen.cells = [...document.querySelectorAll("#summary tbody tr")].map(row => [...row.children].map(e => e.textContent));
const summary = document.querySelector("#summary");
seen.cut = summary.getBoundingClientRect().right - summary.parentElement.getBoundingClientRect().right;
document.title = "SEEN" + JSON.stringify(seen) + "END";
</script></body>"""


def browse(page, width=1200):
    """What the probe saw, and what the browser logged."""
    probed = page.with_name(f"probed-{width}.html")
    probed.write_text(page.read_text().replace("</body>", PROBE))
    found = subprocess.run(
        [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},900",
         "--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom", probed.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    logged = [line for line in found.stderr.splitlines() if "CONSOLE" in line]
    text = re.search(r"<title>SEEN(.*?)END</title>", found.stdout, re.DOTALL)
    assert text, logged
    seen = (
        text[1]
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", '"')
        .replace("&amp;", "&")
    )
    return json.loads(seen), logged


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("page")
    add_group(root / "results" / "tiny" / "g")
    add_group(root / "results" / "tiny" / "h", overrides=("constraint.limit=4",), violations=(0, 8))
    add_study(root / "results" / "tiny", {"b": "h", EVIL: "g"})
    add_run(root / "runs", "<img src=x onerror=alert(2)>")
    names = ["<img src=x onerror=alert(2)>", "tiny"]
    lines = {"cantelli": [[0.01, 0.8], [0.1, 0.9]], "var": [[0.01, 0.9], [0.1, 0.95]]}
    solved = {"lines": lines, "optima": {"cantelli": 0.85, "var": None}, "policies": []}
    with pytest.MonkeyPatch.context() as patch:  # that of a lake takes seconds
        patch.setattr(
            "canary.report.run.exact_frontier", lambda progress: lambda run, config: solved
        )
        return make_report(names, root / "runs", root / "results", root / "page.html")


def test_the_page_is_one_file_that_refers_to_no_other(page):
    text = page.read_text()
    assert len(text) < 200_000
    assert not re.search(
        r"(src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)|@import|url\(",
        text.replace(r"src=x onerror", ""),
    )
    assert EVIL not in text
    assert "<img" not in text


@needs_browser
@pytest.mark.parametrize("width", [1200, 500])
def test_it_draws_and_its_controls_work_in_a_browser(page, width):
    seen, logged = browse(page, width)
    assert not logged
    for title in (
        "Return",
        "Episode cost",
        "Tiers of the update",
        "Line search",
        "Bound against reality",
        "Exact frontier and final policies: return",
    ):
        assert title in seen["titles"]
    assert any(title.startswith("Violation probability") for title in seen["titles"])
    assert any(title.startswith("Distribution") for title in seen["titles"])
    assert seen["figures"] == len(seen["titles"]) == 8
    assert seen["empty"] == 0
    assert seen["seedLines"] == 3 * 2
    assert seen["withoutSeeds"] == 0
    assert seen["logChanges"]
    assert seen["phi"] == 1
    assert seen["rows"] == ["<img src=x onerror=alert(2)>", "b", EVIL]
    assert (seen["chosen"], seen["marked"]) == ("1", 1)
    assert "all seeds" in seen["readout"]
    assert seen["settings"] > 20
    assert seen["overflow"] <= 0


@needs_browser
def test_final_policies_are_in_the_summary_and_nothing_of_it_is_off_the_screen(page):
    seen, _ = browse(page, 1280)
    run, second, first = (dict(zip(seen["head"], cells, strict=True)) for cells in seen["cells"])
    assert first["final P"] == "0.015, largest 0.02"
    assert second["final P"] == "0.008 [0.0035,&nbsp;0.016], largest 0.016"
    assert (second["final safe"], second["final return"]) == ("100%", "0.9")
    assert run["final P"] == "–"
    assert seen["cut"] <= 0
    assert any("At the left edge: 1 with P = 0." in caption for caption in seen["captions"])
    names = [text.split()[0] for text in seen["keys"]]
    assert {"limit", "mean", "VaR", "CVaR"} <= set(names)
    assert not any(text.startswith(("VaR", "CVaR", "mean")) for text in seen["onLines"])


def test_numbers_of_the_histogram_by_hand():
    import polars as pl

    from canary.report.series import costs

    episodes = pl.DataFrame({"cost": [0.0, 0.0, 1.0, 3.0, 50.0], "valid": [True] * 5})
    found = costs(episodes, limit=2.0, epsilon=0.4)
    assert found["counts"][:4] == [2, 1, 0, 1]
    assert sum(found["counts"]) == found["episodes"] == 5
    assert (found["violations"], found["beyond"]) == (2, 1)
    assert found["var"] == 1.0  # two of five lie above it
    assert found["cvar"] == pytest.approx((3 + 50) / 2)
    assert costs(episodes, limit=2.0, epsilon=None)["cvar"] is None
    assert costs(episodes.filter(pl.col("cost") < 0), 2.0, 0.4) is None


def test_the_frontier_of_a_real_run_with_its_policies(tmp_path):
    run = untrained_run(tmp_path)
    frontier = exact_frontier(None)
    found = frontier(run, directory.read_config(run))
    assert [policy["seed"] for policy in found["policies"]] == [0, 3]
    assert all(0 <= policy["violation"] <= 1 for policy in found["policies"])
    returns = dict(found["lines"]["var"])
    assert list(returns.values()) == sorted(returns.values())
    assert found["optima"]["cantelli"] <= found["optima"]["var"]
    alone = frontier(None, directory.read_config(run))
    assert alone["policies"] == []
    assert alone["lines"] == found["lines"]


def test_a_mean_constraint_has_no_epsilon_and_other_methods_have_no_tiers(tmp_path):
    from canary.report.series import updates

    add_run(tmp_path / "runs", "plain")
    page = make_report(["plain"], tmp_path / "runs", tmp_path, tmp_path / "p.html", frontier=False)
    assert '"epsilon":0.02' in page.read_text()
    import polars as pl

    assert updates(pl.DataFrame({"iteration": [0], "steps": [1]})) is None


def test_the_summary_shows_what_the_constraint_limits():
    summary = {"violation_probability": 0.6, "violation_standard_error": 0.1}
    chance, mean = {"limit": 6.0, "epsilon": 0.1}, {"kind": "mean", "limit": 6.0}
    expected = {"label": "P(cost > 6)", "value": 0.6, "error": 0.1}
    assert _measured({"constraint": chance}, summary) == expected  # as older versions stored it
    summary |= {"constraint_value": 23.6, "constraint_standard_error": 2.0}
    expected = {"label": "mean cost", "value": 23.6, "error": 2.0}
    assert _measured({"constraint": mean}, summary) == expected


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(tmp_path):
    add_run(tmp_path / "runs", "good")
    bad = add_run(tmp_path / "runs", "bad")
    (bad / "episodes.parquet").write_bytes(b"no table")
    page = make_report(
        ["good", "bad", "gone"], tmp_path / "runs", tmp_path, tmp_path / "p.html", frontier=False
    )
    text = page.read_text()
    assert "episodes.parquet is damaged" in text
    assert "There is no run" in text
    with pytest.raises(CanaryError, match="damaged"):
        make_report(["bad"], tmp_path / "runs", tmp_path, tmp_path / "q.html", frontier=False)
    assert not (tmp_path / "q.html").exists()


def test_the_command(tmp_path, capsys):
    add_run(tmp_path / "runs", "good")
    out = tmp_path / "report.html"
    arguments = ["--runs", str(tmp_path / "runs"), "--no-frontier", "--quiet"]
    assert main(["report", "--out", str(out), *arguments]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert main(["report", "--out", str(tmp_path), *arguments]) == 2
    assert "names the file of the page" in capsys.readouterr().err
