"""Knobs, one module per subsystem. The registry finds every Knob here."""
