"""Environments that live outside JAX: single ones, rows of them, and rows in worker processes.
numpy only, no JAX.

A worker process imports this room and nothing above it, so that it starts in a moment and stays
small.
"""
