"""Statistical analysis: from observations to verdicts. Pure functions, independent of lab, probe and store."""
