"""Starts, resumes and ends a trial: header, session, conductor, final state."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from signal import SIGPIPE
from typing import Any

from iotrial import __version__
from iotrial.design.plan import Plan
from iotrial.documents import plain
from iotrial.errors import IotrialError, RequestError, RestoreError, StoreError
from iotrial.lab import host
from iotrial.lab.guard import Consent
from iotrial.lab.machine import neighbours
from iotrial.lab.machine.neighbours import BUSY, PRESSURE, STOLEN
from iotrial.lab.target import Target
from iotrial.paths import state_folder
from iotrial.probe.client import Probe
from iotrial.runner.budget_note import Fewer
from iotrial.runner.durability_pass import DurabilityPass
from iotrial.runner.places import Where
from iotrial.runner.planning import default_folder
from iotrial.runner.progress import Watcher
from iotrial.runner.refusals import check_kinds
from iotrial.runner.resolve import Resolved
from iotrial.runner.same_disk import sharing
from iotrial.runner.session import Session
from iotrial.runner.signals import Stopped, StopSignals
from iotrial.runner.time_account import Part
from iotrial.runner.trial import Conductor, Limits
from iotrial.stats import budget_bet
from iotrial.stats.analyse import Spec
from iotrial.stats.model import FinalAnalysis
from iotrial.stats.voids import Void
from iotrial.store import Store, ledger
from iotrial.store.model import (
    Continuation,
    StoredTrial,
    TrialData,
    TrialHeader,
    TrialState,
)
from iotrial.study.places import GUEST, IN_PLACE, busy_in_words, shared_disks_in_words
from iotrial.study.work import makes_files
from iotrial.terminal import escape

_ON = {"device": "the disk given", GUEST: "a disk of {} MiB"}
_GUEST = "a guest (missing kernels and tools are downloaded) in it "


@dataclass(frozen=True, slots=True)
class Engine:
    """What opens a trial's session and carries out its blocks where there is no lab (``iotrial.live``)."""

    session: type[Session]
    conductor: type[Conductor]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a trial ended; ``signal`` is set if a signal ended it, ``final`` if its end was decided by an analysis,
    ``fewer`` if it made room for one of fewer levels: these, and the seconds that are left."""

    trial: StoredTrial
    state: TrialState
    signal: int | None = None
    final: FinalAnalysis | None = None
    fewer: tuple[Fewer, float] | None = None


def begin(
    resolved: Resolved,
    plan: Plan,
    store: Store,
    limits: Limits,
    watcher: Watcher,
    *,
    folder: str,
    seed_chosen: bool,
    options: Mapping[str, object],
    engine: Engine | None = None,
) -> Ended:
    """Run a new trial to its end. The trial is stored before its first run. ``engine``: None for a lab."""
    check_kinds(resolved.study)
    identity = uuid.uuid4().hex
    with StopSignals() as signals:
        for note in (
            # of what was typed, the user has just been shown them with the changes
            *(() if resolved.study.quick else resolved.notes),
            *shared_disks_in_words(plain(sharing(resolved, folder))),
        ):
            watcher.say(note)
        busy: list[dict[str, object]] = []
        if engine is None:  # a service in use is busy with its own work
            busy, says = _busy()
            for note in says:
                watcher.say(note)
        if (making := _making(resolved)) is not None:
            watcher.say(making)
        session = (Session if engine is None else engine.session)(
            resolved,
            plan,
            state=state_folder(),
            folder=folder,
            trial=identity,
            waiting=signals.waiting,
            sample_s=_sample_s(options),
        )
        with _opened(session, signals):
            header = TrialHeader(
                id=identity,
                study=resolved.study,
                seed=plan.seed,
                seed_chosen=seed_chosen,
                alpha=resolved.study.alpha,
                margin=resolved.study.margin,
                started=datetime.now(UTC).isoformat(timespec="seconds"),
                lab={**session.facts(), **({"busy": busy} if busy else {})},
                host=session.again_where_it_dies(lambda: host.facts(session.target)),
                options={
                    **options,
                    **plan.options,
                    "budget_share": budget_bet.SHARE,
                    "folder": folder,
                    "lab": resolved.lab,
                    **({} if resolved.copy_from is None else {"copy_from": resolved.copy_from}),
                    **_place_options(resolved),
                },
                version=__version__,
            )
            trial = store.create_trial(header)
        try:
            ledger.enter(store)
        except StoreError as error:  # the next trial, or `iotrial account`, finds it in the store
            watcher.say(f"not entered yet: {error}")
        return _conduct(session, plan, store, trial, limits, watcher, signals, None, engine)


#: how long the machine is watched before a trial
_WATCHED_S = 0.3


def _busy() -> tuple[list[dict[str, object]], list[str]]:
    """Return what else keeps this machine busy before its lab is made, by the doctor's limits: to store, and in words.

    The words name the busiest processes. What is stored may be shared, and has no names.
    """
    with Probe(isolate=False) as probe:
        seen = neighbours.look(Target(probe), _WATCHED_S)
    worst = max(seen.pressure.items(), key=lambda one: one[1], default=("", 0.0))
    shares = {
        "processors": (seen.busy, BUSY),
        "stolen": (seen.stolen, STOLEN),
        worst[0]: (worst[1], PRESSURE),
    }
    found: list[dict[str, object]] = [
        {"resource": name, "share": round(share, 3)}
        for name, (share, limits) in shares.items()
        if share >= limits[1]
    ]
    names = ", ".join(name for name, _ in seen.busiest)
    says = [f"{text}{f' (busiest: {names})' if names else ''}" for text in busy_in_words(found)]
    return found, says


def resume(
    resolved: Resolved,
    plan: Plan,
    store: Store,
    data: TrialData,
    limits: Limits,
    watcher: Watcher,
    *,
    further: Continuation | None = None,
    engine: Engine | None = None,
) -> Ended:
    """Resume a stored trial with the same plan and seed; its unfinished block is completed first.

    ``further``: the trial had ended and is continued to these limits, on the machine and in the lab of its
    first blocks. Raises RequestError if either has changed.
    """
    trial = data.trial
    named = str(trial.header.options.get("folder", state_folder() / "lab"))
    # the same folder as before, or none: if its disk is not mounted now, the folder is on another disk
    folder = default_folder(resolved, None if named == str(state_folder() / "lab") else named)
    check_kinds(resolved.study)
    with StopSignals() as signals:
        if (making := _making(resolved)) is not None:
            watcher.say(making)
        session = (Session if engine is None else engine.session)(
            resolved,
            plan,
            state=state_folder(),
            folder=folder,
            trial=trial.header.id,
            waiting=signals.waiting,
            sample_s=_sample_s(trial.header.options),
        )
        with _opened(session, signals):
            if further is None:
                store.set_state(trial.header.id, TrialState.RUNNING)
            else:
                _check_unchanged(trial, session)
                store.continue_trial(trial.header.id, further)
        return _conduct(session, plan, store, trial, limits, watcher, signals, data, engine)


#: Facts of a machine and of a place that must match for blocks of two dates to belong to one trial.
_OF_MACHINE = ("kernel", "processor", "processors", "system", "virtual")
_OF_PLACE = (
    "kind",
    "filesystem",
    "size_bytes",
    "mkfs",
    "mount_options",
    "direct_io",
    "modelled",
    "model",
    "array",
    "disks",
)


def _check_unchanged(trial: StoredTrial, session: Session) -> None:
    """Raise RequestError if the machine or the lab differs from that of the trial's first blocks."""
    now = session.again_where_it_dies(lambda: host.facts(session.target))
    changed = [
        (name, trial.header.host.get(name), now.get(name))
        for name in _OF_MACHINE
        if trial.header.host.get(name) != now.get(name)
    ]
    then: Any
    found: Any
    then_lab, now_lab = json.loads(json.dumps([trial.header.lab, session.facts()], default=dict))
    changed += [
        (name, then_lab.get(name), now_lab.get(name))
        for name in ("kind", "pinned", "guest")
        if then_lab.get(name) != now_lab.get(name)
    ]
    for then, found in zip_longest(then_lab.get("places", []), now_lab.get("places", []), fillvalue={}):
        name = found.get("place") or then.get("place")
        changed += [
            (f"{key} of {name}", then.get(key), found.get(key))
            for key in _OF_PLACE
            if then.get(key) != found.get(key)
        ]
    if changed:
        what, then, found = changed[0]
        raise RequestError(
            f"trial {trial.number} cannot be continued here: {escape(what)} was {escape(str(then))}, "
            f"and is {escape(str(found))}",
            hint="its blocks would mix two machines; `iotrial run` runs the study here again, and `iotrial "
            "compare` compares both trials",
        )


def _sample_s(options: Mapping[str, object]) -> float | None:
    """Return the sampling period within a run in seconds; None if the user did not ask for sampling."""
    period_s = options.get("sample_s")
    return float(period_s) if isinstance(period_s, int | float) else None


@contextmanager
def _opened(session: Session, signals: StopSignals) -> Iterator[None]:
    """Open a session; close it again if opening it, or creating the trial inside, fails."""
    try:
        with signals.interruptible():
            session.open()
        yield
    except BaseException as error:
        session.close()
        session.check_restored(error)
        raise


def _place_options(resolved: Resolved) -> dict[str, object]:
    """Return the options that ``consent_of`` and ``located_of`` read."""
    found: dict[str, object] = {}
    places: dict[str, object] = {}
    for site in resolved.sites:
        consent = site.where.consent
        options: dict[str, object] = {}
        if consent is not None:
            options = {"disk": consent.name, "discard_contents": consent.discard_contents}
        elif site.where.folder is not None:
            options = {"folder": site.where.folder}
        if site.name and options:
            places[site.name] = options
        else:
            found |= options
    return {**found, **({"places": places} if places else {})}


def consent_of(header: TrialHeader) -> Consent | None:
    """Return the disk that the user consented to when the trial began; it is found by its name, not by its path then."""
    return _consent(header.options)


def copied_of(header: TrialHeader) -> str | None:
    """Return the folder that was copied into the lab when the trial began."""
    folder = header.options.get("copy_from")
    return None if folder is None else str(folder)


def located_of(header: TrialHeader) -> Mapping[str, Where]:
    """Return where places were when the trial began; disks by their names."""
    places = header.options.get("places")
    return {
        str(name): Where(None if "folder" not in options else str(options["folder"]), _consent(options))
        for name, options in (places.items() if isinstance(places, Mapping) else ())
    }


def _consent(options: Mapping[str, object]) -> Consent | None:
    name = options.get("disk")
    if name is None:
        return None
    return Consent(None, str(name), bool(options.get("discard_contents", False)))


def _conduct(
    session: Session,
    plan: Plan,
    store: Store,
    trial: StoredTrial,
    limits: Limits,
    watcher: Watcher,
    signals: StopSignals,
    earlier: TrialData | None,
    engine: Engine | None = None,
) -> Ended:
    """Measure, restore, cut the power, and store how it ended. Raises what had failed first."""
    ended = Ended(trial, TrialState.FAILED)
    failed: BaseException | None = None
    try:
        spec = Spec.from_plan(plan, trial.header.options)
        made = Conductor if engine is None else engine.conductor
        conductor = made(session, plan, spec, store, trial, limits, watcher, signals, earlier)
        ended = replace(ended, state=conductor.run(), final=conductor.final, fewer=conductor.fewer)
    except Stopped as stopped:
        session.abandon_probe()
        ended = replace(ended, state=TrialState.INTERRUPTED, signal=stopped.number)
    except BrokenPipeError:  # the watcher's output was closed: treat it as SIGPIPE
        ended = replace(ended, state=TrialState.INTERRUPTED, signal=SIGPIPE)
    except BaseException as error:
        failed = error
    try:
        _close(session, store, trial, watcher)
    except Exception as error:
        # a lab that failed rarely closes well: the first error is the cause
        failed = failed or error
    if failed is None and ended.signal is None and signals.pending is None and trial.header.study.check:
        try:
            _cut_power(session, plan, store, trial, watcher, signals)
        except Stopped as stopped:
            ended = replace(ended, state=TrialState.INTERRUPTED, signal=stopped.number)
        except Exception as error:
            failed = error
    if engine is None:  # the time of a service in use is not iotrial's
        with suppress(StoreError):  # storing the state will fail as well
            store.append_time_spent(trial.header.id, session.time.spent_s())
    _store_end(session, store, trial, ended.state, failed)
    return replace(ended, trial=replace(trial, state=ended.state), signal=ended.signal or signals.pending)


def _close(session: Session, store: Store, trial: StoredTrial, watcher: Watcher) -> None:
    """Restore everything, and say which settings something else had changed by then."""
    with session.time.part(Part.LAB):
        session.close()
    for text in session.changed_at_end:
        watcher.say(text)
        store.note(trial.header.id, Void.SETTING_CHANGED.value, text)


def _cut_power(
    session: Session, plan: Plan, store: Store, trial: StoredTrial, watcher: Watcher, signals: StopSignals
) -> None:
    with session.time.part(Part.POWER_CUTS, whole=True):
        DurabilityPass(
            session.resolved,
            plan,
            store,
            trial.header.id,
            watcher,
            signals,
            state=state_folder(),
            folder=session.folder,
        ).run()


def _store_end(
    session: Session, store: Store, trial: StoredTrial, state: TrialState, failed: BaseException | None
) -> None:
    """Store how a trial ended. Raises ``failed``, and RestoreError if something could not be restored."""
    if failed is not None:
        with reported_together(failed):
            store.set_state(trial.header.id, TrialState.FAILED, str(failed))
        session.check_restored(failed)
        raise failed
    try:
        store.set_state(trial.header.id, state, None)
    except StoreError as error:
        with reported_together(error):
            session.check_restored()
        raise
    session.check_restored()


@contextmanager
def reported_together(first: BaseException) -> Iterator[None]:
    """Report a second error, raised while an error is being handled, together with the first.

    Failing to restore settings outweighs failing to store: a RestoreError determines the exit status.
    """
    try:
        yield
    except (StoreError, RestoreError) as second:
        first.add_note(f"then also: {second.message}")
        if isinstance(second, RestoreError):
            raise RestoreError(f"{second.message}; before that: {first}", hint=second.hint) from first
        if isinstance(first, IotrialError):
            first.message = (
                f"{first.message}; then the end of the trial could not be stored: {second.message}"
            )
            first.hint = "; ".join(hint for hint in (first.hint, second.hint) if hint) or None
            first.args = (first.message,)


def _making(resolved: Resolved) -> str | None:
    if resolved.lab == IN_PLACE:
        # a quick question names the folder already
        if resolved.study.quick:
            return None
        works = [one.work for one in resolved.study.workloads]
        if any(makes_files(work) and not work.starts_programs for work in works):
            return "in place: the files are made in a folder of their own, which is removed at the end"
        return "in place: your own files are used, and no file is changed but by the command itself"
    if resolved.lab == "directory":
        return "making the lab: a folder on your own file system (no mount, no root)"
    made = []
    for site in resolved.sites:
        on = _ON.get(site.kind, "an image of {} MiB").format(site.size_bytes >> 20)
        what = f" for {' and '.join(site.filesystems)}" if site.filesystems else ""
        made.append(f"{site.name}: {on}{what}" if site.name else f"{on}{what}")
    where = "" if resolved.needs is None else _GUEST
    return f"making the lab: {where}{'; '.join(made)}"
