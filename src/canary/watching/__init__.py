"""Watching a run while it trains: a record per update, for a callback and for the logs of other
tools."""

from canary.watching.update import SeedUpdate as SeedUpdate
from canary.watching.update import Update as Update
