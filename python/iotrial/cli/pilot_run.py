"""``plan --pilot``: run the pilot of a plan, with the same consent as a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iotrial.cli.consent import seek_consent
from iotrial.cli.output import tell
from iotrial.runner.pilot import conduct_pilot, predict
from iotrial.runner.progress import Silent

if TYPE_CHECKING:
    from iotrial.cli.run_request import RunRequest
    from iotrial.design.plan import Plan
    from iotrial.runner.pilot import Pilot
    from iotrial.runner.resolve import Resolved
    from iotrial.stats.forecast import Forecast


def piloted(
    resolved: Resolved,
    plan: Plan,
    seconds: float,
    request: RunRequest,
    *,
    folder: str,
    quiet: bool,
) -> tuple[Pilot, Forecast]:
    """Run the pilot and predict from it. Raises what a trial raises. Nothing is stored, and nothing is left
    behind."""
    seek_consent(resolved, folder, trust=request.trust, yes=request.yes)
    pilot = conduct_pilot(resolved, plan, Silent() if quiet else _Spoken(), time_s=seconds, folder=folder)
    budget = resolved.study.budget
    return pilot, predict(pilot, plan, budget_s=budget.time_s, budget_blocks=budget.blocks)


class _Spoken:
    """Prints the pilot's messages, but nothing about its blocks."""

    def say(self, text: str) -> None:
        tell(f"pilot: {text}", err=True)

    def update(self, snapshot: object) -> None:
        """Show nothing: the pilot is blind."""
