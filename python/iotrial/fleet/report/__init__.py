"""What all hosts of a fleet say together: terminal, Markdown, JSON, and one HTML page."""
