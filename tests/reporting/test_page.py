"""The page in a real browser: it draws, its controls work, nothing is loaded, names are text."""

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import canary
from canary.cli import main
from canary.constraints import Chance, Mean, from_dict, to_dict
from canary.numerics.statistics import clopper_pearson_interval
from canary.reporting.page import (
    cost_histogram,
    final_policies,
    make_report,
    results_of,
    subject_of,
)
from canary.reporting.results import Results
from canary.reporting.summary import read_evaluation
from canary.runs import files
from reporting.stored import UPDATES, add_group, add_run, add_study
from runs.untrained_runs import LAKE, untrained_run

EVIL = "<script>alert(1)</script>"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here; apt-get install chromium"
)

# Uses the controls of the page as a person would and writes what it sees into the title.
PROBE = """
<script>
const seen = {}, count = selector => document.querySelectorAll(selector).length;
const change = (id, set) => { const e = document.getElementById(id); set(e); e.dispatchEvent(new Event("change")); };
seen.seedLines = count("path.seed");
seen.titles = [...document.querySelectorAll("figure h3")].map(e => e.textContent);
seen.empty = [...document.querySelectorAll("path")].map(e => e.getAttribute("d")).filter(d => !d || d.includes("NaN")).length;
change("seeds", e => e.checked = false); seen.withoutSeeds = count("path.seed");
const before = document.querySelector("main").innerHTML;
change("log", e => e.checked = false); seen.logChanges = before !== document.querySelector("main").innerHTML;
document.querySelectorAll("#summary tbody tr")[1].click(); seen.chosen = document.getElementById("subject").value;
const svg = document.querySelector("figure svg"), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + box.width / 2, clientY: box.top + 20 }));
seen.readout = document.querySelector(".readout").textContent;
seen.overflow = document.documentElement.scrollWidth - innerWidth;
seen.cells = [...document.querySelectorAll("#summary tbody tr")].map(row => [...row.children].map(e => e.textContent));
document.title = "SEEN" + JSON.stringify(seen) + "END";
</script></body>"""


def browse(page, width):
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
    return json.loads(html.unescape(text[1])), logged


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("page")
    add_group(root / "results" / "tiny" / "g")
    add_group(root / "results" / "tiny" / "h", overrides=("constraint.limit=4",), violations=(0, 8))
    add_study(root / "results" / "tiny", {"b": "h", EVIL: "g"})
    add_run(root / "runs", "<img src=x onerror=alert(2)>")
    names = ["<img src=x onerror=alert(2)>", "tiny"]
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
def test_it_draws_and_its_controls_work_in_a_browser(page):
    seen, logged = browse(page, 500)
    assert not logged
    assert len(seen["titles"]) == 5  # the run has no final policies
    assert {"Return", "Tiers of the update"} <= set(seen["titles"])
    assert (seen["empty"], seen["seedLines"], seen["withoutSeeds"]) == (0, 3 * 2, 0)
    assert seen["logChanges"]
    assert [cells[0] for cells in seen["cells"]] == ["<img src=x onerror=alert(2)>", "b", EVIL]
    assert "0.0080 [0.0035, 0.0157]" in seen["cells"][1]
    assert seen["chosen"] == "1"
    assert "all seeds" in seen["readout"]
    assert seen["overflow"] <= 0


def test_numbers_of_the_histogram_by_hand():
    def histogram(constraint, *costs):
        stored = {"constraint": to_dict(constraint)}
        return cost_histogram(Results({}, stored, costs=np.array(costs)))

    found = histogram(Chance(2.0, 0.4), 0.0, 0.0, 1.0, 3.0, 50.0)
    assert found["counts"][:4] == [2, 1, 0, 1]
    assert sum(found["counts"]) == found["episodes"] == 5
    assert (found["violations"], found["beyond"]) == (2, 1)
    assert found["var"] == 1.0  # two of five lie above it
    assert found["cvar"] == pytest.approx((3 + 50) / 2)
    assert histogram(Mean(2.0), 0.0, 3.0)["cvar"] is None
    assert histogram(Mean(2.0)) is None


EVALUATED = {
    "limit": 5.5, "epsilon": 0.02, "updates": UPDATES, "seed_ids": [1, 2],
    "episodes_per_seed": [200, 200], "violation_per_seed": [0.0, 0.05], "return_per_seed": [0.4, 0.6],
}  # fmt: skip


def test_the_last_evaluation_fills_the_final_columns(tmp_path):
    run = add_run(tmp_path, "good")

    def final():
        (shown,) = results_of(run)
        line = subject_of(shown)["line"]
        return line["final P"], line["final J"]

    assert final() == ("-", "-")
    files.write_sealed(run / "evaluation.json", EVALUATED)
    lower, upper = clopper_pearson_interval(10, 400)
    assert final() == (f"0.0250 [{lower:.4f}, {upper:.4f}]", "0.500")
    files.write_sealed(run / "evaluation.json", EVALUATED | {"updates": 7})
    assert final() == ("-", "-")  # it is about an earlier policy
    (run / "evaluation.json").write_text("{")
    assert final() == ("-", "-")


def test_an_evaluation_is_kept_for_the_page(tmp_path):
    run = untrained_run(tmp_path)
    opened = canary.load(run, LAKE)
    summary = canary.evaluate(opened, 50, seeds=[3])
    found = read_evaluation(run, summary["updates"])
    (policy,) = final_policies(found, from_dict(summary["constraint"])).items()
    assert (policy[0], policy[1]["episodes"]) == (3, 50)
    assert policy[1]["violation"] == summary["violation_per_seed"][0]
    canary.evaluate(opened, 20, deterministic=True)  # another policy
    assert read_evaluation(run, summary["updates"]) == found


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(tmp_path):
    add_run(tmp_path / "runs", "good")
    bad = add_run(tmp_path / "runs", "bad")
    (bad / "episodes.parquet").write_bytes(b"no table")
    page = make_report(["good", "bad", "gone"], tmp_path / "runs", tmp_path, tmp_path / "p.html")
    text = page.read_text()
    assert "episodes.parquet is damaged" in text
    assert "There is no run" in text


def test_the_command(tmp_path, capsys):
    add_run(tmp_path / "runs", "good")
    out = tmp_path / "report.html"
    arguments = ["--runs", str(tmp_path / "runs"), "--quiet"]
    assert main(["report", "--out", str(out), *arguments]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    missing = str(tmp_path / "missing" / "report.html")
    assert main(["report", "--out", missing, *arguments]) == 2
    assert missing in capsys.readouterr().err
