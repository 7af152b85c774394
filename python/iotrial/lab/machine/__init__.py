"""Properties of a machine that matter for measuring: clock, frequency, power, neighbours, programs. All through a Target."""
