"""Plans: conditions, arms, randomised blocks. Pure and seeded."""
