"""Trials on noise of known truth: what the design and the analysis promise, and what they and others need."""
