"""Simulated trials on noise with known truth: guarantees of design and analysis, compared with other tests."""
