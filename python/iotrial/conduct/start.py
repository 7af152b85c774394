"""How a trial is begun, resumed and ended: header, session, conductor, final state."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGPIPE

from iotrial import __version__
from iotrial.analysis.analyse import Spec
from iotrial.conduct.filesets import invoking_user
from iotrial.conduct.progress import Watcher
from iotrial.conduct.resolve import Resolved, disk_bytes, image_bytes
from iotrial.conduct.session import Session, refuse_leftovers
from iotrial.conduct.signals import Stopped, StopSignals
from iotrial.conduct.trial import Conductor, Limits
from iotrial.design.plan import Plan, new_seed
from iotrial.errors import IotrialError, RequestError, RestoreError, StoreError
from iotrial.lab import host
from iotrial.lab.guard import Consent, claim
from iotrial.lab.journal import Journal
from iotrial.lab.lock import MachineLock
from iotrial.lab.target import Target
from iotrial.paths import state_folder
from iotrial.probe.client import Probe
from iotrial.store import Store
from iotrial.store.model import StoredTrial, TrialData, TrialHeader, TrialState


@dataclass(frozen=True, slots=True)
class Ended:
    """How a trial ended; ``signal`` where one ended it."""

    trial: StoredTrial
    state: TrialState
    signal: int | None = None


def default_folder(resolved: Resolved, on: str | None) -> str:
    """Where images or lab folders go: as named, else the state folder."""
    folder = Path(on).expanduser().resolve() if on else state_folder() / "lab"
    if on and not folder.is_dir():
        raise RequestError(f"--on {on}: there is no such folder")
    if on and not os.access(folder, os.W_OK):
        raise RequestError(f"--on {on}: not writable for {'root' if resolved.root else 'you'}")
    if on and resolved.root and resolved.lab == "directory":  # an image has no name
        _check_ours(folder, on)
    return str(folder)


def _check_ours(folder: Path, on: str) -> None:
    """Root's folder among strangers: who can rename it away can put another, or a link, in its place."""
    facts = folder.stat()
    swappable = facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX
    owners = {0, os.geteuid(), invoking_user()[0]}
    if swappable or facts.st_uid not in owners:
        whose = "everybody may rename what is in it" if swappable else f"it belongs to user {facts.st_uid}"
        raise RequestError(
            f"--on {on}: {whose}, and root would work there", hint="name a folder that is yours or root's"
        )


def make_plan(resolved: Resolved, seed: str | None, *, controls: bool) -> Plan:
    """The plan of a resolved study, with a fresh seed unless the user chose one (32 hexadecimal digits)."""
    return Plan(resolved.study, seed or new_seed(), controls=controls)


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
) -> Ended:
    """Run a new trial to its end. The trial is stored before its first run."""
    identity = uuid.uuid4().hex
    with StopSignals() as signals:
        for note in resolved.notes:
            watcher.say(note)
        watcher.say(_making(resolved))
        session = Session(
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
                lab=session.facts(),
                host=host.facts(session.target),
                options={
                    **options,
                    "folder": folder,
                    "lab": resolved.lab,
                    **_disk_options(resolved.consent),
                },
                version=__version__,
            )
            trial = store.create_trial(header)
        return _conduct(session, plan, store, trial, limits, watcher, signals, None)


def resume(
    resolved: Resolved, plan: Plan, store: Store, data: TrialData, limits: Limits, watcher: Watcher
) -> Ended:
    """Go on with an interrupted trial: same plan, same seed; its unfinished block is completed first."""
    trial = data.trial
    named = str(trial.header.options.get("folder", state_folder() / "lab"))
    # the same folder as then, or none: on a disk that is not mounted now another one would be measured
    folder = default_folder(resolved, None if named == str(state_folder() / "lab") else named)
    with StopSignals() as signals:
        watcher.say(_making(resolved))
        session = Session(
            resolved,
            plan,
            state=state_folder(),
            folder=folder,
            trial=trial.header.id,
            waiting=signals.waiting,
            sample_s=_sample_s(trial.header.options),
        )
        with _opened(session, signals):
            store.set_state(trial.header.id, TrialState.RUNNING)
        return _conduct(session, plan, store, trial, limits, watcher, signals, data)


def _sample_s(options: Mapping[str, object]) -> float | None:
    """How often samples are taken within a run, where the user asked for it."""
    period_s = options.get("sample_s")
    return float(period_s) if isinstance(period_s, int | float) else None


@contextmanager
def _opened(session: Session, signals: StopSignals) -> Iterator[None]:
    """Opens a session. Where that fails, or what is done inside to make the trial known, it is closed again."""
    try:
        with signals.interruptible():
            session.open()
        yield
    except BaseException as error:
        session.close()
        session.check_restored(error)
        raise


def look_at_disk(resolved: Resolved) -> dict[str, object] | None:
    """What a run in a device lab would be made on: claimed, looked at as a run would, and given up again; None for
    another lab. Nothing is written. Raises what the guard raises.
    """
    consent = resolved.consent
    if consent is None:
        return None
    wanted = disk_bytes(resolved.study)
    with MachineLock(), Probe(isolate=False) as probe:
        refuse_leftovers(Journal(state_folder() / "journal"))  # of a trial on this very disk, perhaps
        disk = claim(Target(probe), consent, wanted)
        return {
            "path": consent.path,
            "device": disk.device,
            "model": disk.model,
            "name": disk.name,
            "bytes": disk.size_bytes,
            "lab_bytes": wanted,
            "discard_contents": consent.discard_contents,
        }


def _disk_options(consent: Consent | None) -> dict[str, object]:
    """What ``consent_of`` reads."""
    return {"disk": consent.name, "discard_contents": consent.discard_contents} if consent is not None else {}


def consent_of(header: TrialHeader) -> Consent | None:
    """The disk to which the user consented when the trial was begun; it is found by its name, not by its path then."""
    name = header.options.get("disk")
    if name is None:
        return None
    return Consent(None, str(name), bool(header.options.get("discard_contents", False)))


def _conduct(
    session: Session,
    plan: Plan,
    store: Store,
    trial: StoredTrial,
    limits: Limits,
    watcher: Watcher,
    signals: StopSignals,
    earlier: TrialData | None,
) -> Ended:
    identity = trial.header.id
    signal: int | None = None
    state = TrialState.FAILED
    failed: BaseException | None = None
    try:
        conductor = Conductor(
            session, plan, Spec.from_plan(plan), store, trial, limits, watcher, signals, earlier
        )
        state = conductor.run()
    except Stopped as stopped:
        signal = stopped.number
        session.abandon_probe()
        state = TrialState.INTERRUPTED
    except BrokenPipeError:  # nobody reads any more what the watcher says: as if SIGPIPE had come
        signal = SIGPIPE
        state = TrialState.INTERRUPTED
    except BaseException as error:
        failed = error
    try:
        session.close()
    except Exception as error:
        # a lab that has failed is seldom taken down well: the first word is the cause
        failed = failed or error
    if failed is None:
        try:
            store.set_state(identity, state, None)
        except StoreError as error:
            with told_beside(error):
                session.check_restored()
            raise
        session.check_restored()
    else:
        with told_beside(failed):
            store.set_state(identity, TrialState.FAILED, str(failed))
        session.check_restored(failed)
        raise failed
    return Ended(replace(trial, state=state), state, signal or signals.pending)


@contextmanager
def told_beside(first: BaseException) -> Iterator[None]:
    """Lets the error that is under way be told with a second one that happens while it is dealt with.

    What could not be put back outweighs what could not be stored: a RestoreError gives the exit status.
    """
    try:
        yield
    except (StoreError, RestoreError) as second:
        first.add_note(f"then also: {second.message}")
        if isinstance(second, RestoreError):
            raise RestoreError(f"{second.message}; before that: {first}", hint=second.hint) from first
        if isinstance(first, IotrialError):
            first.message = f"{first.message}; then its end could not be stored: {second.message}"
            first.hint = "; ".join(hint for hint in (first.hint, second.hint) if hint) or None
            first.args = (first.message,)


def _making(resolved: Resolved) -> str:
    if resolved.lab == "image":
        return f"making the lab: an image of {image_bytes(resolved.study) >> 20} MiB, {resolved.study.lab.filesystem}"
    if resolved.lab == "device":
        return f"making the lab: {resolved.study.lab.filesystem} on the disk that you named"
    return "making the lab: a folder on your own file system (nothing is mounted, nothing needs root)"
