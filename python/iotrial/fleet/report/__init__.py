"""Report over all hosts of a fleet: terminal, Markdown, JSON, and one HTML page."""
