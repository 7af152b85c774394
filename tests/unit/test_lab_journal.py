"""The undo journal: durable before the change; the first original wins; no entry is dropped before the undo is verified."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from iotrial.errors import LabError, TargetError
from iotrial.knobs.knob import Undone
from iotrial.lab.journal import Journal
from iotrial.lab.objects.device import LabProcess
from iotrial.lab.objects.loop import LabLoop
from iotrial.lab.restore import refuse_leftovers, restore
from iotrial.lab.target import Target

REQUESTS = "/sys/block/loop9/queue/nr_requests"


class Files:
    """Fake target backed by a dictionary of files. ``stubborn`` ones accept a write and keep their value."""

    name = "a machine of files"

    def __init__(self, files: dict[str, str], stubborn: tuple[str, ...] = ()) -> None:
        self.files = {"/proc/sys/kernel/random/boot_id": "boot-1", **files}
        self.stubborn = stubborn
        self.writes: list[tuple[str, str]] = []

    def call(self, verb: str, **fields: object) -> dict[str, object]:
        path = str(fields.get("path"))
        if verb == "read":
            if path not in self.files:
                raise TargetError(f"read {path}: No such file", errno=2)
            return {"data": self.files[path] + "\n"}
        if verb == "write":
            self.writes.append((path, str(fields["data"])))
            if path not in self.stubborn:
                self.files[path] = str(fields["data"])
            return {}
        if verb == "stat":
            raise TargetError(f"stat {path}: No such file", errno=2)
        raise AssertionError(verb)


def record(journal: Journal, path: str = REQUESTS, original: str = "64") -> None:
    journal.record("block.nr_requests", {"path": path}, original, ("128", "256"), boot_id="boot-1")


def test_an_entry_is_on_disk_before_record_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    record(Journal(tmp_path / "journal"))
    assert [Path(path).name for path in synced] == ["000001.draft", "journal", tmp_path.name]
    assert json.loads((tmp_path / "journal" / "000001.entry").read_text().splitlines()[0])["original"] == "64"


def test_an_entry_is_gone_from_the_disk_before_drop_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path / "journal")
    record(journal)
    (entry,) = journal.pending()
    synced: list[tuple[str, bool]] = []

    def fsync(descriptor: int) -> None:
        folder = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((folder.name, journal.path(entry.number).exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    journal.drop(entry)
    # first the mark, while its entry is still present, then the entry
    assert synced == [(tmp_path.name, True), ("journal", False)]


def test_values_of_one_subject_that_are_ours_add_up(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.record("block.nr_requests", {"path": REQUESTS}, "64", ("128",), boot_id="boot-1")
    journal.record("block.nr_requests", {"path": REQUESTS}, "128", ("256", "128"), boot_id="boot-1")
    for reader in (journal, Journal(tmp_path)):
        (entry,) = reader.pending()
        assert (entry.original, entry.ours) == ("64", ("128", "256"))


def test_what_an_earlier_trial_has_left_changed_is_not_recorded_over(tmp_path: Path) -> None:
    record(Journal(tmp_path))
    later = Journal(tmp_path)
    with pytest.raises(LabError, match="loop9"):
        record(later, original="256")
    assert [entry.original for entry in later.pending()] == ["64"]


def test_the_first_original_is_kept_when_the_same_subject_is_recorded_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    record(journal, original="64")
    record(journal, original="256")
    (entry,) = journal.pending()
    assert entry.original == "64"


def test_undo_goes_in_reverse_order_and_drops_what_it_has_proven(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    record(journal, REQUESTS)
    record(journal, REQUESTS.replace("loop9", "loop8"))
    machine = Files({REQUESTS: "256", REQUESTS.replace("loop9", "loop8"): "128"})
    results = restore(journal, Target(machine))
    assert [path.split("/")[3] for path, _ in machine.writes] == ["loop8", "loop9"]
    assert [r.outcome for r in results] == [Undone.RESTORED, Undone.RESTORED]
    assert machine.files[REQUESTS] == "64"
    assert journal.pending() == ()


def test_a_value_that_is_neither_ours_nor_the_original_is_left_alone_and_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    record(journal)
    machine = Files({REQUESTS: "77"})
    (result,) = restore(journal, Target(machine))
    assert result.outcome is Undone.FOREIGN
    assert result.kept
    assert machine.writes == []
    assert len(journal.pending()) == 1


def test_an_entry_whose_read_back_fails_is_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    record(journal)
    (result,) = restore(journal, Target(Files({REQUESTS: "256"}, stubborn=(REQUESTS,))))
    assert result.kept
    assert 'wrote "64", kernel reports "256"' in str(result.problem)
    assert len(journal.pending()) == 1


def test_what_a_reboot_has_undone_is_dropped_without_a_write(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    record(journal)
    machine = Files({REQUESTS: "256", "/proc/sys/kernel/random/boot_id": "boot-2"})
    (result,) = restore(journal, Target(machine))
    assert result.outcome is Undone.GONE
    assert machine.writes == []
    assert journal.pending() == ()


def test_restoring_twice_is_the_same_as_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    record(journal)
    machine = Files({REQUESTS: "256"})
    restore(journal, Target(machine))
    assert machine.files[REQUESTS] == "64"
    assert restore(journal, Target(machine)) == ()


def test_a_loop_device_that_another_has_attached_since_is_not_touched(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.record(
        "block.nr_requests",
        {"path": REQUESTS},
        "64",
        ("256",),
        identity={"backing": "/ours"},
        boot_id="boot-1",
    )
    machine = Files({REQUESTS: "256", "/sys/block/loop9/loop/backing_file": "/somebody/elses.img"})
    (result,) = restore(journal, Target(machine))
    assert result.outcome is Undone.FOREIGN
    assert "/somebody/elses.img" in str(result.problem)
    assert machine.writes == []


def test_an_entry_that_cannot_be_read_keeps_no_other_from_being_undone(tmp_path: Path) -> None:
    record(Journal(tmp_path), REQUESTS)
    record(Journal(tmp_path), REQUESTS.replace("loop9", "loop8"))
    record(Journal(tmp_path), REQUESTS.replace("loop9", "loop7"))
    (tmp_path / "000002.entry").write_text("{not json")
    machine = Files({REQUESTS.replace("9", str(number)): "256" for number in (7, 8, 9)})
    restore(Journal(tmp_path), Target(machine))
    assert sorted(path.split("/")[3] for path, _ in machine.writes) == ["loop7", "loop9"]
    entries, (damage,) = Journal(tmp_path).read()
    assert entries == ()
    assert (damage.number, damage.path) == (2, tmp_path / "000002.entry")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"version": 1}',
        '{"version": 99}',
        '{"version": 1, "number": 7, "knob": "k", "address": {}, "original": "", "ours": []}',
    ],
    ids=["empty", "a list", "deep", "no fields", "another version", "another number"],
)
def test_what_is_no_entry_is_named_with_its_file_and_blocks_the_next_trial(tmp_path: Path, text: str) -> None:
    (tmp_path / "000003.entry").write_text(text)
    entries, (damage,) = Journal(tmp_path).read()
    assert entries == ()
    assert (damage.number, damage.path.name) == (3, "000003.entry")
    with pytest.raises(LabError, match=r"000003\.entry") as refused:
        refuse_leftovers(Journal(tmp_path))
    assert "iotrial restore" in str(refused.value.hint)


def test_an_entry_is_never_written_over_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "000003.entry").write_text("{not json")
    journal = Journal(tmp_path)
    record(journal)
    assert (tmp_path / "000003.entry").read_text() == "{not json"
    assert [entry.number for entry in journal.pending()] == [4]


def test_an_entry_whose_fields_lack_what_its_kind_needs_is_kept_and_the_others_are_undone(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    record(journal)
    journal.record("lab.path", {"somewhere": "else"}, "absent", ("present",))
    journal.record("lab.loop", {"device": "loop9"}, "present", ("attached",), boot_id="boot-1")
    machine = Loop({REQUESTS: "256"})
    results = {r.entry.knob: r for r in restore(journal, Target(machine))}
    assert results["lab.path"].kept
    assert machine.files[REQUESTS] == "64"


def _removed(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _a_file(folder: Path) -> None:
    _removed(folder)
    folder.write_text("in its place")


def _garbled(folder: Path) -> None:
    for path in folder.iterdir():
        path.write_text("\0\0\0")


def _with_other_originals(folder: Path) -> None:
    for path in folder.iterdir():
        path.write_text(path.read_text().replace('"64"', '"7777"'))


@pytest.mark.parametrize("harm", [_removed, _a_file, _garbled, _with_other_originals])
def test_what_a_process_has_recorded_is_undone_from_memory_and_what_was_lost_is_known(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = tmp_path / "journal"
    journal = Journal(folder)
    record(journal, REQUESTS)
    record(journal, REQUESTS.replace("loop9", "loop8"))
    harm(folder)
    machine = Files({REQUESTS: "256", REQUESTS.replace("loop9", "loop8"): "128"})
    results = restore(journal, Target(machine))
    assert [r.outcome for r in results] == [Undone.RESTORED, Undone.RESTORED]
    assert set(machine.writes) == {(REQUESTS, "64"), (REQUESTS.replace("loop9", "loop8"), "64")}
    assert sorted(journal.lost) == [1, 2]
    assert journal.pending() == ()
    assert not folder.is_dir() or not list(folder.glob("*.entry"))


def test_a_lost_entry_is_written_again_so_that_a_kill_does_not_lose_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    record(journal, original="64")
    _removed(tmp_path / "journal")
    record(journal, REQUESTS.replace("loop9", "loop8"))
    assert [(entry.number, entry.original) for entry in Journal(tmp_path / "journal").pending()] == [
        (1, "64"),
        (2, "64"),
    ]
    assert list(journal.lost) == [1]


def test_a_journal_that_has_become_a_link_is_damage_even_where_it_leads_to_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    record(journal)
    (tmp_path / "empty").mkdir()
    journal.folder.rename(tmp_path / "moved")
    journal.folder.symlink_to(tmp_path / "empty")
    # a fresh process, with nothing in memory
    entries, damaged = Journal(tmp_path / "journal").read()
    assert entries == ()
    assert [one.path for one in damaged] == [journal.folder]
    with pytest.raises(LabError, match="found a link"):
        refuse_leftovers(Journal(tmp_path / "journal"))
    (tmp_path / "empty").rename(tmp_path / "away")
    assert [one.path for one in Journal(journal.folder).read()[1]] == [journal.folder]
    (tmp_path / "away").rename(tmp_path / "empty")
    # this process still has the entry: it is undone from memory, and nothing is written through the link
    files = Files({REQUESTS: "256"})
    (done,) = restore(journal, Target(files))  # type: ignore[arg-type]
    assert done.outcome is Undone.RESTORED
    assert files.files[REQUESTS] == "64"
    assert set(journal.lost) == {1}
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("emptied", [True, False])
def test_entries_that_were_removed_after_a_kill_are_missed_by_the_next_command_until_that_is_accepted(
    tmp_path: Path, *, emptied: bool
) -> None:
    journal = Journal(tmp_path / "journal")
    record(journal)
    record(journal, "/sys/block/loop9/queue/scheduler")
    if emptied:
        for path in journal.folder.iterdir():
            path.unlink()
    else:
        shutil.rmtree(journal.folder)
    after = Journal(tmp_path / "journal")
    entries, (damage,) = after.read()
    assert entries == ()
    assert "removed" in damage.reason
    with pytest.raises(LabError, match="removed"):
        refuse_leftovers(after)
    after.dismiss(damage.path)
    assert after.read() == ((), ())


def test_entries_that_iotrial_itself_has_dropped_are_not_missed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for path in (REQUESTS, "/sys/block/loop9/queue/scheduler"):
        record(journal, path)
    first, second = journal.pending()
    journal.drop(second)
    assert Journal(tmp_path / "journal").read() == ((first,), ())
    journal.drop(first)
    assert Journal(tmp_path / "journal").read() == ((), ())
    assert [path.name for path in tmp_path.iterdir()] == ["journal"]


def test_entries_removed_after_another_was_put_back_are_missed(tmp_path: Path) -> None:
    for path in (REQUESTS, "/sys/block/loop9/queue/scheduler"):
        record(Journal(tmp_path / "journal"), path)
    restoring = Journal(tmp_path / "journal")
    first, second = restoring.pending()
    restoring.drop(second)
    restoring.path(first.number).unlink()
    entries, (damage,) = Journal(tmp_path / "journal").read()
    assert entries == ()
    assert "removed" in damage.reason


def _written_by_its_group(path: Path) -> None:
    path.chmod(0o620)


def _written_by_all(path: Path) -> None:
    path.chmod(0o602)


def _of_another_user(path: Path) -> None:
    os.chown(path, 54_321, -1)


@pytest.mark.parametrize(
    "given",
    [_written_by_its_group, _written_by_all, pytest.param(_of_another_user, marks=pytest.mark.root)],
)
@pytest.mark.parametrize("what", ["entry", "folder"])
def test_an_entry_that_somebody_else_could_have_written_is_not_obeyed(
    tmp_path: Path, what: str, given: Callable[[Path], None]
) -> None:
    journal = Journal(tmp_path / "journal")
    record(journal)
    harmed = journal.path(1) if what == "entry" else journal.folder
    given(harmed)
    entries, (damage,) = Journal(journal.folder).read()
    assert (entries, damage.path) == ((), harmed)
    machine = Files({REQUESTS: "256"})
    assert restore(Journal(journal.folder), Target(machine)) == ()
    assert machine.writes == []


@pytest.mark.parametrize("killed_before", ["the mark is removed", "the entry is removed"])
def test_a_kill_while_the_last_entry_is_dropped_is_not_taken_for_a_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_before: str
) -> None:
    journal = Journal(tmp_path / "journal")
    record(journal)
    (entry,) = journal.pending()
    real = Path.unlink

    def unlink(path: Path, *, missing_ok: bool = False) -> None:
        if killed_before == "the mark is removed" or path.suffix == ".entry":
            raise KeyboardInterrupt
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    with pytest.raises(KeyboardInterrupt):
        journal.drop(entry)
    assert Journal(tmp_path / "journal").read() == ((entry,), ())


def test_a_journal_that_nobody_disturbs_has_lost_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    record(journal)
    record(journal, original="256")
    (entry,) = journal.pending()
    journal.amend(entry, identity={"half": "done"})
    restore(journal, Target(Files({REQUESTS: "256"})))
    assert journal.lost == {}


def test_what_is_in_somebody_elses_hands_blocks_no_trial_but_one_that_would_change_the_same(
    tmp_path: Path,
) -> None:
    record(Journal(tmp_path))
    with pytest.raises(LabError, match="cut off and left 1 change "):
        refuse_leftovers(Journal(tmp_path))
    restore(Journal(tmp_path), Target(Files({REQUESTS: "77"})))
    after = Journal(tmp_path)
    refuse_leftovers(after)
    record(after, REQUESTS.replace("loop9", "loop8"))
    with pytest.raises(LabError, match="loop9") as refused:
        record(after, original="256")
    assert "iotrial restore --accept 1" in str(refused.value.hint)
    # once the other user has put our value back, it is restored as usual
    machine = Files({REQUESTS: "256"})
    restore(Journal(tmp_path), Target(machine))
    assert (REQUESTS, "64") in machine.writes


def test_a_draft_left_by_a_power_cut_is_no_entry(tmp_path: Path) -> None:
    (tmp_path / "000001.draft").write_text("{half")
    assert Journal(tmp_path).pending() == ()


def test_a_journal_that_cannot_be_written_says_so_and_leaves_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = Journal(tmp_path / "journal")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(LabError, match=r"undo journal .*No space left") as caught:
            record(journal)
    assert "nothing was changed" in str(caught.value.hint)
    assert journal.pending() == ()
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="Not a directory"):
        record(Journal(tmp_path / "file" / "journal"))


def test_what_is_noted_of_an_undo_under_way_survives_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    record(journal)
    (entry,) = journal.pending()
    journal.amend(entry, identity={"half": "done"})
    (again,) = Journal(tmp_path).pending()
    assert again.identity == {"half": "done"}
    assert (again.number, again.original, again.ours) == (entry.number, entry.original, entry.ours)


def test_processes_are_ended_before_anything_is_put_back(tmp_path: Path) -> None:
    class Machine(Files):
        def call(self, verb: str, **fields: object) -> dict[str, object]:
            if verb == "end_session":
                assert self.writes == [], "a process that still lived could have changed it again"
                assert (fields["session"], fields["started"], fields["token"]) == (41, 99, "t")
                return {"killed": 1, "left": []}
            return super().call(verb, **fields)

    journal = Journal(tmp_path)
    LabProcess().announce(journal, session=41, started=99, token="t", boot_id="boot-1")
    record(journal)
    machine = Machine({REQUESTS: "256"})
    assert [r.entry.knob for r in restore(journal, Target(machine))] == ["lab.process", "block.nr_requests"]
    assert machine.files[REQUESTS] == "64"
    assert journal.pending() == ()


def test_a_process_that_cannot_be_ended_is_named_and_its_entry_kept(tmp_path: Path) -> None:
    class Stuck(Files):
        def call(self, verb: str, **fields: object) -> dict[str, object]:
            if verb == "end_session":
                return {"killed": 0, "left": [{"pid": 42, "name": "dd", "state": "D"}]}
            return super().call(verb, **fields)

    journal = Journal(tmp_path)
    LabProcess().announce(journal, session=41, started=99, token="t", boot_id="boot-1")
    (result,) = restore(journal, Target(Stuck({})))
    assert result.kept
    assert "42 (dd, state D)" in str(result.problem)


def test_kinds_of_entries_that_are_spared_stay_as_they_are(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    LabProcess().announce(journal, session=41, started=99, token="t", boot_id="boot-1")
    record(journal)
    restore(journal, Target(Files({REQUESTS: "256"})), spare={"lab.process"})
    assert [entry.knob for entry in journal.pending()] == ["lab.process"]


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_entries_are_ours_alone_to_write_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        journal = Journal(tmp_path / "journal")
        record(journal)
        record(journal, REQUESTS.replace("loop9", "loop8"))
    finally:
        os.umask(before)
    assert len(journal.pending()) == 2
    assert {path.stat().st_mode & 0o777 for path in journal.folder.iterdir()} == {0o600}


def test_while_processes_of_a_trial_live_the_rest_of_it_waits(tmp_path: Path) -> None:
    class Stuck(Files):
        def call(self, verb: str, **fields: object) -> dict[str, object]:
            if verb == "end_session":
                return {"killed": 0, "left": [{"pid": 42, "name": "dd", "state": "D"}]}
            return super().call(verb, **fields)

    journal = Journal(tmp_path)
    LabProcess().announce(journal, session=41, started=99, token="t", boot_id="boot-1")
    record(journal)
    machine = Stuck({REQUESTS: "256"})
    assert all(r.kept for r in restore(journal, Target(machine)))
    assert machine.writes == []
    assert len(journal.pending()) == 2


READ_AHEAD = "/sys/block/loop9/queue/read_ahead_kb"


class Loop(Files):
    """Fake machine with one idle loop device."""

    def call(self, verb: str, **fields: object) -> dict[str, object]:
        if verb == "stat" and fields["path"] == "/sys/block/loop9":
            return {}
        if verb == "loop_status":
            return {"attached": False, "inode": None}
        return super().call(verb, **fields)


def test_while_a_loop_device_of_the_lab_is_in_use_its_folder_stays_and_settings_are_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InUse(Loop):
        def call(self, verb: str, **fields: object) -> dict[str, object]:
            if verb == "loop_status":
                return {"attached": True, "inode": 1}
            if verb == "list":
                return {"names": []}
            return super().call(verb, **fields)

    monkeypatch.setattr(LabLoop, "cleared_within_s", 0.0)
    journal = Journal(tmp_path)
    journal.record("lab.path", {"path": "/run/iotrial"}, "absent", ("present",), boot_id="boot-1")
    taken(journal)
    record(journal)
    machine = InUse({REQUESTS: "256"})
    results = {r.entry.knob: r for r in restore(journal, Target(machine))}
    assert "in use by" in str(results["lab.loop"].problem)
    assert results["lab.path"].problem == "waits for the loop device"
    assert machine.files[REQUESTS] == "64"
    assert [entry.knob for entry in journal.pending()] == ["lab.path", "lab.loop"]


def taken(journal: Journal, **identity: str) -> None:
    journal.record(
        "lab.loop",
        {"device": "loop9"},
        "present",
        ("attached",),
        identity={"inode": "1", "node": "present", "read_ahead_kb": "128", **identity},
        boot_id="boot-1",
    )


def test_a_read_ahead_that_attaching_has_changed_is_put_back(tmp_path: Path) -> None:
    for identity in ({}, {"read_ahead_kb attached": "2560"}):
        journal = Journal(tmp_path / str(len(identity)))
        taken(journal, **identity)
        machine = Loop({READ_AHEAD: "2560"})
        assert [r.outcome for r in restore(journal, Target(machine))] == [Undone.RESTORED]
        assert machine.files[READ_AHEAD] == "128"


def test_a_read_ahead_that_somebody_else_has_set_is_left_alone_by_loop_device_and_knob(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    taken(journal, **{"read_ahead_kb attached": "2560"})
    machine = Loop({READ_AHEAD: "333"})
    assert [r.outcome for r in restore(journal, Target(machine))] == [Undone.FOREIGN]
    journal.record("block.read_ahead_kb", {"path": READ_AHEAD}, "128", ("512", "2560"), boot_id="boot-1")
    restore(journal, Target(machine))
    assert machine.writes == []
    # the knob's own entry covers that file, and is kept
    assert [entry.knob for entry in journal.pending()] == ["block.read_ahead_kb"]
