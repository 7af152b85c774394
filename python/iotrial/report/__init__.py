"""Reports of a stored trial as text, JSON, Markdown and a single HTML file."""
