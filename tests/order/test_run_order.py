"""Order of the steps of a run, against a recording. Only the sequence is tested, not the effect."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recording import Recording, shape

from iotrial.design.model import ArmKind
from iotrial.design.plan import Plan
from iotrial.errors import LabError, TargetError
from iotrial.lab import health, registry
from iotrial.lab.journal import Journal
from iotrial.runner import session as session_module
from iotrial.runner.resolve import resolve
from iotrial.runner.run import Runner
from iotrial.runner.session import Session
from iotrial.runner.time_account import Part
from iotrial.runner.trace_job import Counted, TraceCounts
from iotrial.study.catalogue import find
from iotrial.study.model import Study
from iotrial.study.reader import read_study
from iotrial.study.select import select


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, state: Path, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.setattr(session_module, "Probe", Recording)
    monkeypatch.setattr(session_module.MachineLock, "__enter__", lambda self: self)
    monkeypatch.setattr(session_module.MachineLock, "__exit__", lambda *_: None)
    sessions: list[Session] = []

    def open_study(name: str | Study, **conditions: list[str]) -> tuple[Session, Plan, Recording]:
        study = select(
            find(name) if isinstance(name, str) else name,
            sets={},
            conditions=conditions,
            full=False,
            margin=None,
            alpha=None,
            time_s=None,
            blocks=None,
        )
        resolved = resolve(study, root=True, lab="image")
        plan = Plan(resolved.study, "0" * 32)
        session = Session(resolved, plan, state=state, folder=str(tmp_path), trial="0" * 32)
        session.open()
        sessions.append(session)
        return session, plan, session.probe  # type: ignore[return-value]

    yield open_study
    for session in sessions:
        session.close()


def test_files_that_are_made_once_count_as_making_the_lab(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recording, "_fileset", lambda _, **__: time.sleep(0.3), raising=False)
    session, _, _ = opened("files/permissions", workload=["probe"], cache=["warm"])
    spent = session.time.spent_s()
    assert Part.FILES.value not in spent
    assert spent[Part.LAB.value] >= 0.3


@pytest.mark.parametrize(
    ("study", "conditions"),
    [
        ("files/permissions", {"workload": ["probe"], "cache": ["cold"]}),
        ("files/permissions", {"workload": ["probe"], "cache": ["warm"]}),
        ("files/permissions", {"workload": ["probe"], "cache": ["cold"], "mount": ["ro"]}),
        ("mount/atime", {"workload": ["probe"], "cache": ["warm"]}),
        ("mount/atime", {"workload": ["probe"], "cache": ["cold"]}),
    ],
)
def test_every_arm_makes_the_same_transitions(
    opened: Any, study: str, conditions: dict[str, list[str]]
) -> None:
    session, plan, probe = opened(study, **conditions)
    runner = Runner(session, injected=1.06)
    shapes: dict[str, list[str]] = {}
    for condition in plan.conditions[:1]:
        for index in range(2):
            for run in plan.block(condition, index).runs:
                probe.calls.clear()
                outcome = runner.run(condition, run, block=index)
                assert outcome.problem is None
                shapes[f"{index} {run.arm.name}"] = shape(probe.calls)
    assert len(shapes) >= 8
    assert len({tuple(s) for s in shapes.values()}) == 1, shapes


CACHE = """
[[factor]]
name = "cache"
knob = "cache.state"
levels = ["STATE"]
role = "condition"
"""


def verbs_of_a_run(
    opened: Any, study: str | Study, **conditions: list[str]
) -> list[tuple[str, dict[str, Any]]]:
    session, plan, probe = opened(study, **conditions)
    runner = Runner(session, injected=1.06)
    condition = plan.conditions[0]
    runs = plan.block(condition, 0).runs
    runner.run(condition, runs[0], block=0)
    probe.calls.clear()
    runner.run(condition, runs[1], block=0)
    return list(probe.calls)


def test_a_mode_goes_through_the_neutral_mode_even_where_it_already_stands(opened: Any) -> None:
    calls = verbs_of_a_run(opened, "files/permissions", workload=["probe"], cache=["warm"])
    modes = [fields["mode"] for verb, fields in calls if verb == "set_mode"]
    assert modes[0] == "0000"
    assert modes[1] in ("0444", "0555", "0666", "0777")


def without_reads(verbs: list[str]) -> list[str]:
    """Return the verbs without those that read back settings, which come just before and just after the timed part too."""
    return [verb for verb in verbs if verb != "read"]


def test_a_cold_run_unmounts_after_the_last_change_and_empties_the_device_after_that(opened: Any) -> None:
    calls = [
        verb for verb, _ in verbs_of_a_run(opened, "files/permissions", workload=["probe"], cache=["cold"])
    ]
    order = [
        calls.index(verb) for verb in ("set_mode", "get_mode", "unmount", "evict_device", "mount", "files")
    ]
    assert order == sorted(order)
    assert without_reads(calls)[-1] == "files"


@pytest.mark.parametrize(
    ("cache", "syncs"),
    [
        ("warm", 1),
        ("cold-files", 0),  # the unmount writes what is dirty
        ("cold-data", 1),
        ("cold-system", 1),
    ],
)
def test_what_was_changed_is_synced_once_before_the_timed_part(opened: Any, cache: str, syncs: int) -> None:
    study = VARIED.replace("block.read_ahead_kb", "file.mode").replace('["512", "1024"]', '["0444", "0777"]')
    study = study.replace("[[workload]]", f"{CACHE.replace('STATE', cache)}[[workload]]")
    calls = [verb for verb, _ in verbs_of_a_run(opened, read_study(study, "test", trusted=False))]
    written = [verb for verb in calls if verb in ("syncfs", "unmount")]
    assert calls.count("syncfs") == syncs
    assert len(written) == 1, "syncing twice costs a flush more"
    assert calls.index("set_mode") < calls.index(written[0]) < calls.index("files")


def test_warming_is_the_last_thing_before_the_timed_part(opened: Any) -> None:
    calls = [verb for verb, _ in verbs_of_a_run(opened, "mount/atime", workload=["probe"], cache=["warm"])]
    assert without_reads(calls)[-2:] == ["warm", "files"]


def test_a_remount_goes_through_strictatime_and_is_read_back(opened: Any) -> None:
    calls = verbs_of_a_run(opened, "mount/atime", workload=["probe"], cache=["warm"])
    mounts = [fields["options"] for verb, fields in calls if verb == "mount"]
    assert all("remount" in options for options in mounts)
    assert any("strictatime" in options for options in mounts[:-1])
    last = max(i for i, (verb, _) in enumerate(calls) if verb == "mount")
    assert ("read", {"path": "/proc/self/mountinfo"}) in calls[last:]


def test_access_times_are_set_before_the_mount_that_is_measured(opened: Any) -> None:
    calls = [verb for verb, _ in verbs_of_a_run(opened, "mount/atime", workload=["probe"], cache=["warm"])]
    assert calls.index("set_atime_state") < len(calls) - 1 - calls[::-1].index("mount")


def test_queue_settings_are_journaled_before_they_are_written_and_the_scheduler_last(
    opened: Any, state: Path
) -> None:
    opened("files/permissions", workload=["probe"])
    entries = sorted((state / "journal").glob("*.entry"))
    knobs = [json.loads(path.read_text().splitlines()[0])["knob"] for path in entries]
    assert knobs[:3] == ["lab.process", "lab.path", "lab.loop"]
    assert knobs[-1] == "block.scheduler"
    assert set(knobs[3:]) == {
        "block.scheduler",
        "block.nr_requests",
        "block.read_ahead_kb",
        "block.wbt_lat_usec",
    }


class Kernel(Recording):
    """Fake kernel whose queue settings differ from those that a lab pins.

    It accepts what is written; a change of scheduler also changes the queue length. ``unannounced``: values
    written without being in the journal, neither as ours nor as the original.
    """

    journal: Path

    def __init__(self, *, isolate: bool, **words: object) -> None:
        super().__init__(isolate=isolate, **words)
        self.queue |= {"scheduler": "none [mq-deadline]", "nr_requests": "64", "read_ahead_kb": "4096"}
        self.before = dict(self.queue)
        self.unannounced: list[tuple[str, str]] = []

    def _write(self, path: str, data: str) -> None:
        entries = [json.loads(file.read_text().splitlines()[0]) for file in self.journal.glob("*.entry")]
        allowed = [
            v for e in entries if e["address"].get("path") == path for v in (*e["ours"], e["original"])
        ]
        if data not in allowed:
            self.unannounced.append((path, data))
        name = path.rsplit("/", 1)[1]
        others = [word for word in ("none", "mq-deadline") if word != data]
        self.queue[name] = " ".join([f"[{data}]", *others]) if name == "scheduler" else data
        if name == "scheduler":
            self.queue["nr_requests"] = "128" if data == "none" else "256"


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, opened: Any, state: Path) -> Any:
    """Return a function that opens a study on such a kernel."""
    monkeypatch.setattr(Kernel, "journal", state / "journal", raising=False)
    monkeypatch.setattr(session_module, "Probe", Kernel)
    return opened


def test_the_queue_is_pinned_and_nothing_is_written_that_the_journal_does_not_announce(kernel: Any) -> None:
    session, _, probe = kernel("files/permissions", workload=["probe"])
    assert probe.unannounced == []
    assert probe.queue["scheduler"].startswith("[none]")
    assert (probe.queue["nr_requests"], probe.queue["read_ahead_kb"]) == ("128", "128")
    # a change of scheduler also changes the queue length
    probe.queue["nr_requests"] = "256"
    session.settings.repin(session.places["ext4"])
    assert probe.queue["nr_requests"] == "128"


VARIED = """
[study]
name = "varied"
question = "?"
[lab]
size = "64 MiB"
[[factor]]
name = "ahead"
knob = "block.read_ahead_kb"
levels = ["512", "1024"]
[[workload]]
name = "w"
kind = "files"
files = 2
operations = ["open", "read", "close"]
"""


def test_the_value_that_every_run_goes_through_is_announced_too(kernel: Any) -> None:
    session, plan, probe = kernel(read_study(VARIED, "test", trusted=False))
    runner = Runner(session, injected=1.06)
    for run in plan.block(plan.conditions[0], 0).runs:
        assert runner.run(plan.conditions[0], run, block=0).problem is None
    written = {f["data"] for verb, f in probe.calls if verb == "write" and "read_ahead" in f["path"]}
    assert written == {"128", "512", "1024"}
    assert probe.unannounced == []


def test_settings_are_put_back_newest_first_while_their_device_is_the_labs(kernel: Any) -> None:
    session, _, probe = kernel("files/permissions", workload=["probe"])
    probe.calls.clear()
    session.close()
    verbs = [verb for verb, _ in probe.calls]
    written = [fields["path"].rsplit("/", 1)[1] for verb, fields in probe.calls if verb == "write"]
    assert verbs.index("write") < verbs.index("unmount") < verbs.index("loop_detach")
    assert written[0] == "scheduler"  # it changes the length of the queue, which therefore comes after it
    assert {name: probe.queue[name] for name in ("nr_requests", "read_ahead_kb", "wbt_lat_usec")} == {
        name: probe.before[name] for name in ("nr_requests", "read_ahead_kb", "wbt_lat_usec")
    }
    assert "[mq-deadline]" in probe.queue["scheduler"]
    assert Journal(probe.journal).pending() == ()


def test_no_probe_is_started_while_an_earlier_trial_is_not_put_back(
    opened: Any, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/sys/block/loop9/queue/nr_requests"
    Journal(state / "journal").record("block.nr_requests", {"path": path}, "64", ("128",))
    started: list[Recording] = []

    def probe(**words: Any) -> Recording:
        started.append(Recording(**words))
        return started[-1]

    monkeypatch.setattr(session_module, "Probe", probe)
    with pytest.raises(LabError, match="an earlier trial was cut off"):
        opened("files/permissions", workload=["probe"])
    assert started == []


def test_images_are_made_without_background_initialisation_and_without_discard(opened: Any) -> None:
    _, _, probe = opened("files/permissions", workload=["probe"])
    argv = next(fields["argv"] for verb, fields in probe.calls if verb == "run")
    assert argv[0] == "mkfs.ext4"
    assert "nodiscard,lazy_itable_init=0,lazy_journal_init=0" in argv
    image = next(fields for verb, fields in probe.calls if verb == "image")
    assert image["fill"] == "write"


def test_only_the_positive_control_is_stretched(opened: Any) -> None:
    session, plan, probe = opened("files/permissions", workload=["probe"], cache=["warm"])
    runner = Runner(session, injected=1.06)
    stretched = {}
    for run in plan.block(plan.conditions[0], 0).runs:
        probe.calls.clear()
        runner.run(plan.conditions[0], run, block=0)
        (job,) = [fields for verb, fields in probe.calls if verb == "files"]
        stretched[run.arm.name] = round(job["stretch"], 9)
    assert stretched.pop("control:positive") == 0.06
    assert set(stretched.values()) == {0.0}


WHOLE = """
[study]
name = "whole"
question = "?"
[lab]
size = "64 MiB"
[design]
repeats = 3
[[factor]]
name = "mkfs"
knob = "filesystem.type"
levels = ["ext4", "xfs"]
plot = "PLOT"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[workload]]
name = "read"
kind = "files"
files = 2
operations = ["open", "read", "close"]
"""


def formats_by_run(opened: Any, text: str, blocks: int) -> list[tuple[int | None, int]]:
    """Return, for each run, its stretch and the number of file systems made for it."""
    session, plan, probe = opened(read_study(text, "test", trusted=False))
    runner = Runner(session, injected=1.06)
    found = []
    for index in range(blocks):
        for run in plan.block(plan.conditions[0], index).runs:
            probe.calls.clear()
            assert runner.run(plan.conditions[0], run, block=index).problem is None
            made = [
                f["argv"][0] for verb, f in probe.calls if verb == "run" and f["argv"][0].startswith("mkfs.")
            ]
            assert set(made) <= {f"mkfs.{run.arm.treatment['mkfs']}"}
            found.append((run.plot, len(made)))
    return found


def test_a_file_system_that_is_a_whole_plot_is_made_once_a_stretch(opened: Any) -> None:
    found = formats_by_run(opened, WHOLE.replace("PLOT", "whole"), 2)
    # 3 stretches of 3 repeats of 2 arms with the copy, then 2 of 3 repeats of 3 with the stretched arm
    assert [stretch for stretch, _ in found] == [s for s in range(3) for _ in range(6)] + [
        s for s in range(2) for _ in range(9)
    ]
    assert [made for _, made in found] == ([1, *[0] * 5] * 3 + [1, *[0] * 8] * 2)


def test_a_file_system_that_varies_from_run_to_run_is_made_for_each(opened: Any) -> None:
    text = WHOLE.replace("PLOT", "sub").replace("[design]\nrepeats = 3\n", "")
    assert all(made == 1 for _, made in formats_by_run(opened, text, 1))


def test_a_file_system_made_for_a_run_gets_the_files_of_that_runs_condition_alone(opened: Any) -> None:
    """Two conditions work on files of different sizes: both sets are made at the start, and for each run only its own."""
    text = WHOLE.replace("PLOT", "sub").replace("[design]\nrepeats = 3\n", "")
    text += """
[[workload]]
name = "large"
kind = "files"
files = 1
operations = ["stat"]
size = "1 MiB"
"""
    session, plan, probe = opened(read_study(text, "test", trusted=False))
    runner = Runner(session, injected=1.06)
    assert sorted(f["size"] for verb, f in probe.calls if verb == "fileset") == [4096, 1 << 20]
    for condition in plan.conditions:
        for run in plan.block(condition, 0).runs:
            probe.calls.clear()
            assert runner.run(condition, run, block=0).problem is None
            made = [f["size"] for verb, f in probe.calls if verb == "fileset"]
            assert made == [1 << 20 if condition.workload == "large" else 4096]


def test_the_probe_enters_before_the_cache_is_prepared_and_leaves_after_a_failure_too(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, plan, probe = opened("files/permissions", workload=["probe"], cache=["warm"])
    knob = registry.knob("process.user")  # a knob of the work, which every run of this study uses
    for name in ("enter", "leave"):
        monkeypatch.setattr(knob, name, lambda *_, name=name: probe.calls.append((name, {})))
    runner, condition = Runner(session, injected=1.06), plan.conditions[0]
    run = plan.block(condition, 0).runs[0]
    probe.calls.clear()
    runner.run(condition, run, block=0)
    wanted = ("enter", "warm", "files", "leave")
    assert [verb for verb, _ in probe.calls if verb in wanted] == list(wanted)

    def fails(**_: Any) -> dict[str, Any]:
        raise TargetError("no memory left", errno=12)

    monkeypatch.setattr(probe, "_files", fails)
    monkeypatch.setattr(health, "_gone", lambda _: None)  # this lab's device is in no kernel
    probe.calls.clear()
    assert runner.run(condition, run, block=0).failure == "no memory left"
    assert [verb for verb, _ in probe.calls if verb in wanted] == list(wanted)


def requests(read_ios: int) -> dict[str, Any]:
    return {"loop9": {"read": {"count": read_ios, "total_ns": 1, "histogram": [[1, read_ios]]}}}


def test_an_accounted_repetition_makes_the_transitions_of_a_run_and_asks_for_the_requests_besides(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, plan, probe = opened("files/permissions", workload=["probe"], cache=["cold"])
    runner, condition = Runner(session, injected=1.06), plan.conditions[0]
    job = probe._files
    monkeypatch.setattr(probe, "_files", lambda **fields: {**job(**fields), "requests": requests(7)})
    run = next(run for run in plan.block(condition, 0).runs if run.arm.kind is ArmKind.TREATMENT)
    probe.calls.clear()
    runner.run(condition, run, block=0)
    timed = [call for call in probe.calls if call[0] != "read"]
    probe.calls.clear()
    counts = runner.account(condition, run, block=0, what=frozenset({Counted.REQUESTS}))
    assert counts == TraceCounts(None, requests(7)["loop9"])
    # but what is in force is not read back just before and just after
    assert shape([call for call in probe.calls if call[0] != "read"]) == shape(timed)
    (verb, fields), (timed_verb, timed_fields) = probe.calls[-1], timed[-1]
    assert (verb, fields) == (timed_verb, {**timed_fields, "account_requests": True})


KEYED = """
[study]
name = "keyed"
question = "?"
[lab]
size = "64 MiB"
[[factor]]
name = "buffer"
knob = "work.option"
option = "block_size"
levels = ["4 KiB", "8 KiB"]
[[workload]]
name = "read"
kind = "stream"
operation = "read"
size = "1 MiB"
"""


def test_an_accounted_repetition_does_the_work_with_the_key_that_its_level_gives_it(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, plan, probe = opened(read_study(KEYED, "test", trusted=False))
    runner, condition = Runner(session, injected=1.06), plan.conditions[0]
    monkeypatch.setattr(probe, "_stream", lambda **_: {"requests": requests(1)}, raising=False)
    sizes = {}
    for run in plan.block(condition, 0).runs:
        runner.account(condition, run, block=0, what=frozenset({Counted.REQUESTS}))
        sizes[run.arm.treatment["buffer"]] = probe.calls[-1][1]["block_size"]
    assert sizes == {"4 KiB": 4096, "8 KiB": 8192}


def test_a_pinned_file_system_is_made_once_though_no_treatment_makes_any(opened: Any) -> None:
    text = WHOLE.replace("[design]\nrepeats = 3\n", "").replace('levels = ["ext4", "xfs"]\nplot = "PLOT"', "")
    text = text.replace('[[factor]]\nname = "mkfs"\nknob = "filesystem.type"\n', "")
    text += '[[fixed]]\nknob = "filesystem.type"\nlevel = "xfs"\n'
    session, plan, probe = opened(read_study(text, "test", trusted=False))
    runner = Runner(session, injected=1.06)
    probe.calls.clear()
    for run in plan.block(plan.conditions[0], 0).runs:
        assert runner.run(plan.conditions[0], run, block=0).problem is None
    made = [f["argv"][0] for verb, f in probe.calls if verb == "run" and f["argv"][0].startswith("mkfs.")]
    assert made == ["mkfs.xfs"]


WRITER = """
[study]
name = "writer"
question = "?"
[[factor]]
name = "arm"
knob = "command.argument"
placeholder = "{arm}"
levels = ["1", "2"]
[[workload]]
name = "copy"
kind = "command"
argv = ["cp", "{file}", "{out}/{arm}"]
cache = "CACHE"
"""


@pytest.mark.parametrize("state_of_cache", ["as-is", "warm", "cold-files", "cold-data"])
def test_the_scratch_folder_is_new_and_nothing_of_it_is_dirty_when_the_clock_starts(
    opened: Any, state_of_cache: str
) -> None:
    calls = verbs_of_a_run(
        opened, read_study(WRITER.replace("CACHE", state_of_cache), "writer", trusted=False)
    )
    verbs = [verb for verb, _ in calls]
    written = "unmount" if state_of_cache == "cold-files" else "syncfs"
    order = [verbs.index(verb) for verb in ("remove", "mkdir", written, "command")]
    assert order == sorted(order)
    assert calls[order[0]][1] == {"path": "/run/iotrial/ext4/out", "recursive": True}
    job = calls[verbs.index("command")][1]
    assert job["out"] == "/run/iotrial/ext4/out"
    assert job["sync_after"] == "/run/iotrial/ext4", "what this run leaves is not the next one's"


MAKER = """
[study]
name = "maker"
question = "?"
[[factor]]
name = "inodes"
knob = "mkfs.option"
levels = ["default", "-I 512"]
[[workload]]
name = "mkfs"
kind = "mkfs"
volume = "64 MiB"
"""


def test_mkfs_is_timed_on_a_device_that_nothing_is_mounted_from(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry.knob("mkfs.option"), "verify", lambda *_: None)
    calls = verbs_of_a_run(opened, read_study(MAKER, "maker", trusted=False))
    calls = [call for call in calls if call[0] != "read"]
    verbs = [verb for verb, _ in calls]
    at = verbs.index("command")
    assert verbs[at - 3 : at] == ["unmount", "evict_device", "image_renew"]
    assert verbs[at + 1] == "mount", "what was made is looked at afterwards"
    assert "fileset" not in verbs, "and not made a second time for the next run's files"
    assert not [fields for verb, fields in calls if verb == "run" and "mkfs" in str(fields)]
    [step] = calls[at][1]["steps"]
    assert step["argv"][0] == "mkfs.ext4"
    assert step["argv"][-2:] == ["/dev/loop9", f"{64 << 10}k"]
