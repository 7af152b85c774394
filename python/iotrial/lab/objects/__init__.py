"""Things that a lab creates and that may outlive it, one module per kind, with the undo of their journal entries."""
