"""Real trials with known truth on this machine: identical arms, and arms with an injected slowdown."""
