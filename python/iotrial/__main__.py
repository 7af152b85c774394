"""``python -m iotrial``: the same as the program ``iotrial``."""

from iotrial.cli import main

main()
