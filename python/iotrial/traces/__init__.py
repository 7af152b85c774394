"""Recorded traces (``iotrial record``): their summary, and workloads made from them.

The format is known to the probe alone: it reads a trace and prints JSON.
"""
