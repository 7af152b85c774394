"""Choose a setting from trials, write it where the system keeps it, and take it back."""
