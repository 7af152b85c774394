"""The store as pages for a browser on this machine: read-only, on loopback, in the background.

A request never changes anything, never names a file, and never makes a measurement wait: whatever takes long is done by one
thread, one thing at a time, and not at all while a trial of the store is running.
"""
