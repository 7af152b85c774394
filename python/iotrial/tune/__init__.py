"""Choose settings and keep them: ``iotrial best``, ``apply``, ``revert``."""
