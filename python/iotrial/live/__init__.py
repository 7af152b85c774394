"""Switchback trials on a machine at work: ``iotrial live``."""
