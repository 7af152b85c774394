"""What the probe is asked to do in a run: its job, by the study's work and what knobs have made of it."""

from __future__ import annotations

from iotrial.analysis.spec import stretched_response
from iotrial.conduct.outcome import counters_of
from iotrial.conduct.resolve import Turn
from iotrial.conduct.serving import Serving
from iotrial.conduct.session import Session
from iotrial.conduct.user import command_user
from iotrial.lab.knob import Subject
from iotrial.lab.knobs.environment import ProcessUser
from iotrial.study.model import Workload
from iotrial.study.server import NOBODY
from iotrial.study.work import JobContext, Work, is_cpu


class Asking:
    """Makes the jobs of one session. ``syncs``: what a run has written is synced after its timed part, whatever the work."""

    def __init__(self, session: Session, serving: Serving, *, syncs: bool) -> None:
        self._session = session
        self._serving = serving
        self._syncs_after = syncs

    def job(self, subject: Subject, workload: Workload, stretch: float) -> dict[str, object]:
        """The whole job: what all kinds have in common, and the kind's own fields. ``stretch``: the share of the positive
        control, 0 in other arms."""
        files = subject.files
        assert files is not None
        work = workload.work
        # What a program writes is its own to sync; but what it leaves in the scratch folder must not be written back while
        # the next run is timed.
        scratch = work.needs_scratch()
        writes = scratch or work.leaves_dirty()
        common: dict[str, object] = {
            **({"set": files.set, "files": files.wire, "view": subject.work.view} if work.on_files() else {}),
            **({"out": subject.place.scratch} if scratch else {}),
            "user": self._user(subject.work.reader, work),
            "stretch": stretch,
            "stretch_clock": "cpu" if is_cpu(self._stretched(workload)) else "wall",
            "devices": list(counters_of(subject)),
            "sync_after": subject.place.root if self._syncs_after or writes else None,
            "replicates": work.replicates,
        }
        return {**common, **work.probe_job(self.context(subject, workload))}

    def context(self, subject: Subject, workload: Workload) -> JobContext:
        """What the kind is told of the run."""
        draft = subject.work
        folders = {name: f"{place.root}/own" for name, place in subject.beside.items()}
        return JobContext(
            self._stretched(workload),
            {**draft.arguments, **{f"{{place.{name}}}": folder for name, folder in folders.items()}},
            draft.environment,
            subject.place.device,
            draft.sizes,
            self._serving.lab_context(subject),
            folders,
            draft.mkfs,
        )

    def owner(self, turns: list[Turn], work: Work) -> dict[str, int] | None:
        """Whose the scratch folder is: who will do the work."""
        reader = next((t.value for t in turns if t.knob.name == ProcessUser.name), "self")
        return self._user(reader, work)

    def _user(self, reader: str, work: Work) -> dict[str, int] | None:
        if not self._session.resolved.root or reader == "root":
            return None
        if reader == "unprivileged":
            return {"uid": NOBODY, "gid": NOBODY}
        if work.never_root():
            return self._serving.user()
        uid, gid = command_user(self._session.resolved.study)
        return None if work.as_root() or uid == 0 else {"uid": uid, "gid": gid}

    def _stretched(self, workload: Workload) -> str:
        response = stretched_response(self._session.plan.responses(workload.name))
        return "" if response is None else response.name
