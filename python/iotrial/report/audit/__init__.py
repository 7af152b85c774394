"""An audit of foreign numbers as text, Markdown and JSON; one set of sentences for all."""
