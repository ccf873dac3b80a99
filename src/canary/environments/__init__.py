"""The environments by name. A name's settings are the fields of its (frozen) dataclass."""

from canary.environments.eco_ant import EcoAnt
from canary.environments.icy_lake import IcyLake
from canary.environments.point_goal import PointGoal, PointGoal2500

ENVIRONMENTS = {"EcoAnt": EcoAnt, "IcyLake": IcyLake, "PointGoal": PointGoal, "PointGoal2500": PointGoal2500}
