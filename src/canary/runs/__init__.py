"""A run directory and what fills it: training, checkpoints, tables, and the policies that are read
back."""
