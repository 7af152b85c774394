"""From observations to verdicts. Pure: knows of no lab, probe or store."""
