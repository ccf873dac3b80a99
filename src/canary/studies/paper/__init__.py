"""The paper's tables and figures: a short script each over the store of results."""
