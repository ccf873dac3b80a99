"""Comparisons: which variants are trained, the training of them, and their tables and figures."""
