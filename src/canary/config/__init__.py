"""What is trained on what: the configuration of a run, its settings as text, and the presets."""
