"""Serve the store as web pages to a browser on this machine: read-only, on loopback, in the background.

A request never changes anything, never names a file, and never delays a measurement: long work is done by one
worker, one job at a time, and never while a trial of the store is running.
"""
