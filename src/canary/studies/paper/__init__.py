"""The paper's tables and figures, each by a short script over the store of results."""
