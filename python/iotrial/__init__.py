"""iotrial: storage tuning on trial.

Does this storage setting make this work faster, on this machine, by how much, and how sure are we?
"""

__version__ = "0.1.0"
