"""One page to look at: `canary report` draws runs and studies into a self-contained HTML file."""
