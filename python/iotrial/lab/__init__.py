"""Changes the machine under test: places, knobs, caches, and the undo journal that restores everything."""
