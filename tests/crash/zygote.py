"""Fork server for runs of the program that count their steps and may be killed at one.

An order also has ``die_at`` and ``kinds``. The names of the passed steps are written to a file in the folder
``output``. With ``IOTRIAL_ROOT`` in its environment, ``apply`` and the verbs after it act on a tree of files that behaves
like a machine, and the trial is a made-up one whose settings are better.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from steps import Steps

sys.path.insert(0, str(Path(__file__).parents[1] / "root"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from forking import Order, serve


def on_a_tree(root: Path) -> None:
    """Let verbs act on a tree, and give ``apply`` a trial."""
    from accounts import with_evidence
    from apply_forged import forged
    from machine_trees import EVERYTHING, FakeMachine

    from iotrial.cli import kept_settings
    from iotrial.cli.verbs import apply

    texts = []
    for one in EVERYTHING:
        option = next((f"/{name}={value}" for name, value in one.options.items()), "")
        today = {"mount.atime": "relatime", "mount.option": "default"}.get(one.knob, "old")
        texts.append(f"{one.knob}{option}:{today},{one.value}")
    trial = forged("0123456789abcdef", texts)
    kept_settings.Machine = FakeMachine  # type: ignore[misc]
    apply.document_at = lambda _: trial  # type: ignore[assignment]
    apply.account_here = lambda: with_evidence(trial)  # type: ignore[assignment]


def begin(order: Order) -> Callable[[], None]:
    root = order["environment"].get("IOTRIAL_ROOT")
    if root:
        on_a_tree(Path(root))
    steps = Steps(order["die_at"], frozenset(order["kinds"]))
    steps.install()

    def end() -> None:
        (Path(order["output"]) / "steps").write_text("\n".join(steps.names))

    return end


if __name__ == "__main__":
    serve(begin)
