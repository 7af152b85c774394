"""Workload kinds: one module each, discovered automatically. ``WORK`` of a module is its Struct (``study.work``)."""
