"""The job that the probe is sent for a run, from the study's work and what knobs have changed of it."""

from __future__ import annotations

from iotrial.errors import RequestError
from iotrial.guest.protocols import SHARE
from iotrial.lab.disk import DiskPlace
from iotrial.lab.knob import RunContext
from iotrial.lab.knobs.work import ProcessUser
from iotrial.runner.command_user import command_user
from iotrial.runner.outcome import counters_of
from iotrial.runner.resolve import KnobSetting
from iotrial.runner.session import Session
from iotrial.runner.work_server import Serving
from iotrial.stats.spec import stretched_response
from iotrial.study.model import Workload
from iotrial.study.server import NOBODY
from iotrial.study.work import JobContext, Step, Work, filled, is_cpu


class JobBuilder:
    """Builds the jobs of one session. ``syncs``: sync what a run has written after its timed part, whatever the work."""

    def __init__(self, session: Session, serving: Serving, *, syncs: bool) -> None:
        self._session = session
        self._serving = serving
        self._syncs_after = syncs

    def job(self, subject: RunContext, workload: Workload, stretch: float) -> dict[str, object]:
        """Return the whole job: the fields common to all kinds, and the kind's own.

        ``stretch``: the slowdown injected in the positive control, as a share; 0 in other arms.
        """
        files = subject.files
        assert files is not None
        work = workload.work
        # A program has to sync its own output. But what it leaves in the scratch folder must not be written
        # back while the next run is timed.
        scratch = work.needs_scratch()
        writes = scratch or work.leaves_dirty()
        common: dict[str, object] = {
            **(
                {"set": files.set, "files": files.wire, "view": subject.work.view}
                if work.on_files() and subject.place.data is None
                else {}
            ),
            **({"out": subject.place.scratch} if scratch else {}),
            "user": self.user(subject, work),
            "stretch": stretch,
            "stretch_clock": "cpu" if is_cpu(self._stretched(workload)) else "wall",
            "devices": list(counters_of(subject)),
            "sync_after": subject.place.root if self._syncs_after or writes else None,
            "replicates": work.repeats_from(subject.work.cache),
        }
        own = work.probe_job(self.context(subject, workload))
        if prefix := subject.work.prefix:
            steps = own.get("steps")
            if not isinstance(steps, list):
                raise RequestError(
                    f"workload {workload.name}: without root only a command can have another niceness",
                    hint="run it with sudo, or try it with a command of your own: iotrial try process.nice=0,10 -- COMMAND",
                )
            own = {**own, "steps": [{**step, "argv": [*prefix, *step["argv"]]} for step in steps]}
        return {**common, **own}

    def words(self, subject: RunContext, workload: Workload, step: Step) -> list[str]:
        """Return the arguments of a command of the study, with its placeholders filled in."""
        values = self.context(subject, workload).arguments
        return [filled(word, values) for word in step.argv]

    def context(self, subject: RunContext, workload: Workload) -> JobContext:
        """Return what the kind of work needs to know about the run."""
        draft, place = subject.work, subject.place
        share = place.share if isinstance(place, DiskPlace) else None
        folders = {name: f"{place.root}/own" for name, place in subject.extra_places.items()}
        return JobContext(
            self._stretched(workload),
            {
                **({} if share is None else {SHARE: share.url}),
                **draft.arguments,
                **{f"{{place.{name}}}": folder for name, folder in folders.items()},
                **({} if subject.place.data is None else {"{dir}": subject.place.data}),
            },
            draft.environment,
            subject.place.device,
            draft.sizes,
            self._serving.lab_context(subject),
            folders,
            draft.mkfs,
        )

    def owner(self, turns: list[KnobSetting], work: Work) -> dict[str, int] | None:
        """Return the owner of the scratch folder: the user who will do the work."""
        reader = next((t.value for t in turns if t.knob.name == ProcessUser.name), "self")
        return self._user(reader, work)

    def user(self, subject: RunContext, work: Work) -> dict[str, int] | None:
        """Return the user of the work's programs; None: the probe's own."""
        return self._user(subject.work.reader, work)

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
