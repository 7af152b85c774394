"""Changes the target: places, knobs, caches, and the journal that puts all back."""
