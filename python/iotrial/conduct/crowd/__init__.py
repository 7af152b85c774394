"""Many clients at once: their links, their clocks, the moment at which they begin together, and what comes of it."""
