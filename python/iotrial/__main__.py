"""``python -m iotrial``: the same as the program ``iotrial``."""

from iotrial.conduct.signals import end_at_once


def run() -> None:
    """The program. Signals are seen to before anything that takes time is imported."""
    end_at_once()
    from iotrial.cli import main

    main()


if __name__ == "__main__":
    run()
