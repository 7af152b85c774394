"""``python -m iotrial``: the same as the program ``iotrial``."""

import gc

from iotrial.conduct.signals import end_at_once

#: so many more values than were given up, and Python looks for cycles among them. Its own 700 are for programs that stay:
#: of the start of this one, which makes modules and keeps them, a fifteenth went there.
YOUNG = 50_000


def run() -> None:
    """The program. Signals are seen to before anything that takes time is imported."""
    end_at_once()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    from iotrial.cli import main

    main()


if __name__ == "__main__":
    run()
