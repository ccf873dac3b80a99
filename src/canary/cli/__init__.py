"""The `canary` command. Heavy modules are imported inside the commands: help and lists answer at
once."""

from canary.cli.main import main as main
