"""Comparisons of variants: their list, their training, and their tables and figures."""
