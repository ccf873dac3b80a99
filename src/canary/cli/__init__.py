"""The `canary` command: `main`, and a file per command.

A command's file holds its options, as a dataclass whose texts are its help, and the function that
does it. Options arrive as texts and are judged where they are used, so that a mistake ends in the
same sentence here and in Python. Heavy modules are imported inside the functions: help and lists
answer at once.
"""

from canary.cli.main import main as main
