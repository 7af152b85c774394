"""Entry point of ``python -m iotrial``, equivalent to the ``iotrial`` command."""

import gc

from iotrial.runner.signals import end_at_once

#: Generation-0 threshold of the garbage collector (allocations minus deallocations). Python's default of 700 suits
#: long-running programs; importing our modules, which are never freed, spent a fifteenth of the start-up time in it.
YOUNG = 100_000


def run() -> None:
    """Run the program. Signal handling is set up before the slow imports."""
    end_at_once()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    from iotrial.cli import main

    main()


if __name__ == "__main__":
    run()
