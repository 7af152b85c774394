"""Kinds of work: one module each, found by being here. ``WORK`` of a module is its Struct (``study.work``)."""
