"""Run directories: training, checkpoints, tables, and policies loaded from them."""
