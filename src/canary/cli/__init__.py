"""The `canary` command. The commands import heavy modules when they run, so help and lists are
fast."""

from canary.cli.main import main as main
