"""One module a subsystem; every Knob here is found by the registry."""
