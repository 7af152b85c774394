"""Cuts the power of a disk that logs its writes: which states may it be left in, and what do they hold after recovery?

``log`` reads the log, ``states`` draws states, ``rebuild`` makes a disk image of one, ``recover`` mounts and checks it,
``disk`` makes the disk that logs and the one that is mounted, ``marks`` records what a workload acknowledges.
"""
