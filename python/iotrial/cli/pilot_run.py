"""``plan --pilot``: run the pilot of a plan, with the same consent as a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iotrial.cli.consent import seek_consent
from iotrial.cli.output import tell
from iotrial.errors import RequestError
from iotrial.runner.pilot import conduct_pilot, predict
from iotrial.runner.progress import Silent
from iotrial.units import UnitError, parse_duration

if TYPE_CHECKING:
    from iotrial.cli.run_request import RunRequest
    from iotrial.design.plan import Plan
    from iotrial.runner.pilot import Pilot
    from iotrial.runner.resolve import Resolved
    from iotrial.stats.forecast import Forecast

DEFAULT = "10s"


def pilot_seconds(study: str | None, text: str | None) -> tuple[str | None, float | None]:
    """Return STUDY and the seconds of ``--pilot`` (None: not given). ``--pilot STUDY`` is read as the user
    meant it.

    Raises RequestError if the text is neither a duration nor a study.
    """
    if text is None:
        return study, None
    try:
        seconds = parse_duration(text)
    except UnitError as error:
        if study is None:  # the option has consumed the study's name
            return text, parse_duration(DEFAULT)
        raise RequestError(f"--pilot: {error.message}", hint=error.hint) from error
    if seconds <= 0:
        raise RequestError("a pilot takes more than 0 s", hint="leave --pilot out for a plan without one")
    return study, seconds


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
