"""Trials on disk: SQLite, append-only, durable at commit."""
