"""Audit of third-party measurements: which conclusions the numbers support. Pure functions from observations to findings."""
