"""Watching a run while it trains: a record per update, for a callback and for logs."""
