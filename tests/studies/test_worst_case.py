"""The study of the worst-case bounds: every bound holds what it bounds, and the table says so."""

import polars as pl

from canary.studies import store
from canary.studies.catalogue import ALL_STUDIES
from canary.studies.paper import worst_case
from canary.studies.runner import Places, Request, reproduce


def test_updates_are_bounded_stored_once_and_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(worst_case, "UPDATES", 4)
    faster = (*worst_case.OVERRIDES, "training.merge_capacity=0")  # less to trace
    monkeypatch.setattr(worst_case, "OVERRIDES", faster)
    places = Places(runs=tmp_path / "runs", results=tmp_path)
    study, request = ALL_STUDIES["worst-case"], Request(seeds=(7400,))
    paths = reproduce("bounds", study, places, request, quiet=True)
    before = (tmp_path / "bounds" / "points.json").read_bytes()
    reproduce("bounds", study, places, request, quiet=True)
    assert (tmp_path / "bounds" / "points.json").read_bytes() == before
    data = pl.DataFrame(store.read_points(tmp_path / "bounds"))
    assert 0 < len(data) <= 4
    assert (data["alpha"] > 0).all()
    assert (data["error"] <= data["error_bound"]).all()
    assert (data["mean"] <= data["mean_bound"]).all()
    assert data["tier"][0] in paths["table"].read_text()
