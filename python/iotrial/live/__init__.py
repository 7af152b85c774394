"""Switchback trials on a machine in use (``iotrial live``).

The runs of a live trial are time windows: a block has one window for each setting, in random order, and the
response is the service's own metric. Plan, store, analysis and report are those of every trial. This package has what is
new: sources of metrics, the window, the guard, and the watchdog that takes the settings back if iotrial cannot.
"""
