"""The benchmark of environments measures every named environment and the engines."""

from benchmarks import environment_speed

from canary.environments.icy_lake import IcyLake


def test_it_measures_what_is_registered_and_the_engines(monkeypatch):
    monkeypatch.setattr(environment_speed, "ENVIRONMENTS", {"Lake": IcyLake})
    monkeypatch.setattr(environment_speed, "MANY", 4)
    monkeypatch.setattr(environment_speed, "FEW", 3)
    result = environment_speed.run(steps=3, mjx_steps=0)
    found = {(row["what"], row["environments"]) for row in result["measurements"]}
    assert found == {("Lake", 3), ("EcoAnt native", 4), ("bare mujoco.rollout loop", 4)}
    assert min(row["steps_per_second"] for row in result["measurements"]) > 0
    assert "native_to_mjx" not in result
    assert 0.01 < result["native_to_bare"] < 100
