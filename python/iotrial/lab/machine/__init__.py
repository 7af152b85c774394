"""What a machine is like for measuring: clock, frequency, power, neighbours, programs. Read through a Target only."""
