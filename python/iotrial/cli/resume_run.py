"""Shared part of ``resume`` and ``continue``: run more blocks of a stored trial's plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from iotrial.cli.consent import ask_consent, seek_consent, show_intent
from iotrial.cli.finish import Outputs, conclude, refuse_unwritable
from iotrial.cli.live_view import watcher_for
from iotrial.cli.trial_run import engine_of
from iotrial.design.plan import Plan
from iotrial.errors import RequestError
from iotrial.paths import store_path
from iotrial.runner.resolve import resolve
from iotrial.runner.start import Ended, consent_of, copied_of, located_of, resume
from iotrial.runner.trial import Limits
from iotrial.store import Store
from iotrial.store.model import Continuation, StoredTrial, TrialData
from iotrial.store.packed.consistency import check_stored
from iotrial.study.places import IN_PLACE

#: returns the limits of the further runs, and the record to store if the trial had ended (``continue``).
#: Raises RequestError
Chosen = Callable[[TrialData, Plan], tuple[Limits, Continuation | None]]


def go_on(
    ref: str,
    chosen: Chosen,
    *,
    refuse: Callable[[StoredTrial], None],
    fleet_hint: str,
    trust: bool,
    as_json: bool,
    html: str | None,
    force: bool,
    yes: bool = True,
) -> int:
    """Measure more blocks of a stored trial's own plan, report, and return the exit status.

    ``refuse`` raises RequestError for a trial in a state that does not allow it. Unless ``yes``, a trial that switches
    settings in use asks first.
    """
    refuse_unwritable(html, force=force)
    with Store.open(store_path()) as store:
        data = store.data(ref)
        _check(data, refuse, fleet_hint)
        header = data.trial.header
        limits, further = chosen(data, Plan.stored(header.study, header.seed, header.options))
        ended = measure_more(store, data, limits, further=further, trust=trust, quiet=as_json, yes=yes)
        return conclude(store, ended, Outputs(as_json=as_json, html=html, force=force))


def measure_more(
    store: Store,
    data: TrialData,
    limits: Limits | None = None,
    *,
    quiet: bool,
    further: Continuation | None = None,
    trust: bool = False,
    yes: bool = True,
) -> Ended:
    """Measure more blocks of a stored trial. ``further``: of one that had ended. ``limits``: None for those that it has."""
    header = data.trial.header
    options: dict[str, Any] = dict(header.options)
    if limits is None and further is not None:
        limits = Limits(further.time_s, further.blocks, stop_when_decided=not further.no_stop)
    plan = Plan.stored(header.study, header.seed, options)
    resolved = resolve(
        header.study,
        root=os.geteuid() == 0,
        lab=str(options["lab"]),
        explicit=set(options.get("asked", ())),
        trust=trust or header.study.trusted,
        consent=consent_of(header),
        located=located_of(header),
        copy_from=copied_of(header),
    )
    if "consented" not in options and not resolved.study.trusted:  # begun before consent was needed
        show_intent(resolved, str(options.get("folder", "")), ())
        ask_consent(resolved.study, trust=trust)
    if not yes and resolved.lab == IN_PLACE and resolved.changes:
        seek_consent(resolved, str(options.get("folder", "")), trust=True, yes=False)
    with watcher_for(plan, quiet=quiet, store=store.path) as watcher:
        return resume(
            resolved,
            plan,
            store,
            data,
            limits or limits_so_far(data),
            watcher,
            further=further,
            engine=engine_of(resolved.study),
        )


def _check(data: TrialData, refuse: Callable[[StoredTrial], None], fleet_hint: str) -> None:
    """Raise RequestError if this machine cannot run more blocks of the trial."""
    stored = data.trial
    if stored.imported is not None:
        raise RequestError(
            f"trial {stored.number} was measured on another machine, and cannot be resumed here",
            hint="`iotrial run --like FILE` runs the study and plan of a packed trial as a new trial",
        )
    if "fleet" in stored.header.options:
        raise RequestError(
            f"trial {stored.number} belongs to a host of a fleet, and cannot be resumed here", hint=fleet_hint
        )
    refuse(stored)
    check_stored(data)
    missing = [name for name in ("lab", "time_s", "blocks") if name not in stored.header.options]
    if missing:
        raise RequestError(
            f"trial {stored.number} does not record how it was started ({', '.join(missing)}), so it cannot be resumed",
            hint="`iotrial report` shows what is stored of it; `iotrial run` starts a new trial",
        )


def limits_so_far(data: TrialData) -> Limits:
    """Return the current limits of the trial: those it began with, or those of its last continuation."""
    options: dict[str, Any] = dict(data.trial.header.options)
    if data.continued:
        last = data.continued[-1]
        return Limits(last.time_s, last.blocks, stop_when_decided=not last.no_stop)
    return Limits(
        float(options["time_s"]),
        int(options["blocks"]),
        stop_when_decided=not options.get("no_stop", False),
    )
