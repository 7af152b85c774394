"""``plan --pilot``: conduct the pilot of a plan, with the consent that a run would ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iotrial.cli.consent import seek_consent
from iotrial.cli.output import tell
from iotrial.conduct.pilot import conduct_pilot, predict
from iotrial.conduct.progress import Silent
from iotrial.errors import RequestError
from iotrial.units import UnitError, parse_duration

if TYPE_CHECKING:
    from iotrial.analysis.forecast import Forecast
    from iotrial.cli.run_request import RunRequest
    from iotrial.conduct.pilot import Pilot
    from iotrial.conduct.resolve import Resolved
    from iotrial.design.plan import Plan

DEFAULT = "10s"


def pilot_seconds(study: str | None, text: str | None) -> tuple[str | None, float | None]:
    """STUDY and the seconds of ``--pilot`` (None: not asked for). ``--pilot STUDY`` is read as it was meant.

    Raises RequestError for what is neither.
    """
    if text is None:
        return study, None
    try:
        seconds = parse_duration(text)
    except UnitError as error:
        if study is None:  # the option has taken the word that was meant for the study
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
    """The pilot and what it predicts. Raises what a trial raises; nothing is stored, nothing left."""
    seek_consent(resolved, folder, trust=request.trust)
    pilot = conduct_pilot(resolved, plan, Silent() if quiet else _Spoken(), time_s=seconds, folder=folder)
    budget = resolved.study.budget
    return pilot, predict(pilot, plan, budget_s=budget.time_s, budget_blocks=budget.blocks)


class _Spoken:
    """Says what a pilot says, and shows nothing of its blocks."""

    def say(self, text: str) -> None:
        tell(f"pilot: {text}", err=True)

    def update(self, snapshot: object) -> None:
        """Blind: nothing to show."""
