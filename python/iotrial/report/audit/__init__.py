"""An audit of published data as text, Markdown and JSON, all with the same sentences."""
