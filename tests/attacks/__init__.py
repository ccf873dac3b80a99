"""Attacks on what canary promises, as a suite: `make test-attacks` (docs/reliability.md).

Each class of attacks is a module with an `Attack`. Try number i of a class is a function of the
seed and i alone, so a suite that was stopped goes on where it stopped, and any failure can be tried
again.
"""
