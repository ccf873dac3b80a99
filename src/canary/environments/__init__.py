"""The environments by name. A name's settings are the fields of its (frozen) dataclass."""

from canary.environments.icy_lake import IcyLake

ENVIRONMENTS = {"IcyLake": IcyLake}
