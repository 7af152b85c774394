"""Trials of known truth on this machine: identical arms, and arms with a known slow-down put in."""
