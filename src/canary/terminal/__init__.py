"""Output for people: progress, tables, and files of results."""
