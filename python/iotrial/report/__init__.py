"""A stored trial as text, JSON, Markdown and one HTML file."""
