"""What a lab makes that may outlive it, one module a kind: each says how its journal entries are undone."""
