"""Somebody else's numbers: what they can show and what they cannot. Plain observations in, findings out; pure."""
