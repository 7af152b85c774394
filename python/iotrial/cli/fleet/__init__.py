"""Subcommands of ``iotrial fleet``, one module each; each holds one ``command``."""
