"""The study of the worst-case bounds: every bound holds what it bounds, and the table says so."""

import polars as pl

from canary.studies import store
from canary.studies.page import save_views
from canary.studies.paper import worst_case


def test_updates_are_bounded_stored_once_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(worst_case, "UPDATES", 4)
    faster = (*worst_case.OVERRIDES, "training.merge_capacity=0")  # less to trace
    monkeypatch.setattr(worst_case, "OVERRIDES", faster)
    about = {"name": "worst-case", "title": "Bounds", "view": "worst-case", "rows": []}
    store.write_sealed(tmp_path / "study.json", about)
    worst_case.complete(tmp_path, (7400,))
    before = (tmp_path / "updates.json").read_bytes()
    worst_case.complete(tmp_path, (7400,))
    assert (tmp_path / "updates.json").read_bytes() == before
    data = pl.DataFrame(store.read_sealed(tmp_path / "updates.json")["updates"])
    assert 0 < len(data) <= 4
    assert (data["alpha"] > 0).all()
    assert (data["error"] <= data["error_bound"]).all()
    assert (data["mean"] <= data["mean_bound"]).all()
    assert data["tier"][0] in save_views(tmp_path)["table"].read_text()
