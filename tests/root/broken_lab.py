"""Run the program with a lab that is broken on purpose: the copy of the reference is slowed down, the slowed
copy is not.

First argument: ``sound`` or ``broken``; second: FILE=SERIAL,... as in ``with_stand_ins.py``, or ``-``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "contract"))

from stand_in import replace_look_up

from iotrial.cli import main
from iotrial.design.model import ArmKind, Condition, PlannedRun
from iotrial.runner.outcome import Outcome
from iotrial.runner.run import Runner


class BrokenRunner(Runner):
    """A runner that slows down the wrong one of the two control arms."""

    _kind = ArmKind.TREATMENT

    def run(self, condition: Condition, run: PlannedRun, **more: Any) -> Outcome:
        self._kind = run.arm.kind
        return super().run(condition, run, **more)

    def _measure(self, context: Any, workload: Any, slowdown: float, state: str) -> dict[str, Any]:
        swapped = {ArmKind.NEGATIVE: self._control_slowdown, ArmKind.POSITIVE: 0.0}
        return super()._measure(context, workload, swapped.get(self._kind, slowdown), state)


if __name__ == "__main__":
    mode, disks = sys.argv.pop(1), sys.argv.pop(1)
    if disks != "-":
        replace_look_up(dict(pair.split("=") for pair in disks.split(",")))
    if mode == "broken":
        import iotrial.runner.trial

        iotrial.runner.trial.Runner = BrokenRunner  # type: ignore[misc]
    main()
