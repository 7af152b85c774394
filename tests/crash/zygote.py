"""Fork server for runs of the program that count their steps and may be killed at one.

An order also has ``die_at`` and ``kinds``. The names of the passed steps are written to a file in the folder
``output``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from steps import Steps

sys.path.insert(0, str(Path(__file__).parents[1]))

from forking import Order, serve


def begin(order: Order) -> Callable[[], None]:
    steps = Steps(order["die_at"], frozenset(order["kinds"]))
    steps.install()

    def end() -> None:
        (Path(order["output"]) / "steps").write_text("\n".join(steps.names))

    return end


if __name__ == "__main__":
    serve(begin)
