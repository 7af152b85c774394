"""Experiment plans: conditions, arms, randomised blocks. Pure functions of study and seed."""
