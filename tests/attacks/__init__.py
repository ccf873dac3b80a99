"""Attacks on runs, files and commands (docs/reliability.md)."""
