"""What was applied is taken back to the byte, from every point at which it can be cut off."""

from __future__ import annotations

import errno
import functools
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from machine_trees import (
    EVERYTHING,
    FSTAB,
    HUGE_PAGES,
    NOATIME,
    READ_AHEAD,
    SCHEDULER,
    SWAPPINESS,
    THP,
    Crash,
    FakeMachine,
    choice,
    image,
    tree,
)
from test_places_to_keep import tuned

from iotrial.errors import LabError, RequestError
from iotrial.lab.lock import Busy
from iotrial.tune import watchdog
from iotrial.tune.applied import FOLDER, Record, Records, apply, keep, revert
from iotrial.tune.choice import Choice
from iotrial.tune.machine import DRAFT, Machine
from iotrial.tune.places_to_keep import plan
from values import replace


def record_of(
    machine: FakeMachine, choices: tuple[Choice, ...] = EVERYTHING, *, at: str = "/data/db", **changes: object
) -> Record:
    planned = plan(machine, choices, at)
    guard = watchdog.guard_for(machine)
    fields: dict[str, object] = {
        "trial": choices[0].trial, "number": 7, "state": "applying", "applied": "2026-11-26T00:00:00+00:00",
        "kernel": "6.1.0", "boot": machine.boot, "due_s": machine.uptime_s + 600, "due": "", "origin": "", "command": (),
        "folder": "/data/db", "entries": planned.entries, "steps": planned.steps, "guard": guard.steps,
        "covers_reboot": guard.covers_reboot, "timer": guard.kind,
    }  # fmt: skip
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


def arm(machine: FakeMachine, record: Record) -> None:
    machine.run("arm", record.short)


def applied(machine: FakeMachine, choices: tuple[Choice, ...] = EVERYTHING) -> Record:
    return apply(Records(machine), record_of(machine, choices), functools.partial(arm, machine))


def disarm(machine: FakeMachine, record: Record) -> None:
    machine.run("disarm", record.short)


def kept(machine: FakeMachine, record: Record) -> Record:
    return keep(Records(machine), record, functools.partial(disarm, machine))


def reverted(machine: FakeMachine, *, force: bool = False) -> list[Record]:
    records = Records(machine)
    standing = [one for one in reversed(records.all()) if one.in_force]
    return [
        revert(records, one, why="test", force=force, disarm=functools.partial(disarm, machine))
        for one in standing
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tree(tmp_path)


def test_everything_is_set_and_then_as_before(root: Path) -> None:
    before = image(root)
    machine = FakeMachine(root)
    record = applied(machine)
    assert (root / "proc/sys/vm/swappiness").read_text() == "10"
    assert (root / "sys/block/sdb/queue/scheduler").read_text() == "none mq-deadline [bfq]"
    assert (root / "sys/block/sdb/queue/read_ahead_kb").read_text() == "1024"
    assert (root / THP).read_text() == "always madvise [never]"
    assert "rw,nosuid,noatime " in (root / "proc/self/mountinfo").read_text()
    assert "commit=30" in (root / "proc/fs/ext4/sdb/options").read_text()
    assert not [step for step in record.steps if step.drift(machine)]
    kept(machine, record)
    assert [one.problems for one in reverted(machine)] == [()]
    assert image(root) == before


def test_keeping_removes_the_guard_and_nothing_else(root: Path) -> None:
    machine = FakeMachine(root)
    record = applied(machine)
    unit = root / "etc/systemd/system/iotrial-applied.service"
    link = root / "etc/systemd/system/sysinit.target.wants/iotrial-applied.service"
    assert "revert" in unit.read_text()
    assert link.resolve() == unit.resolve()
    settings = {name: what for name, what in image(root).items() if "systemd" not in name}
    kept(machine, record)
    assert not unit.exists()
    assert not link.is_symlink()
    assert {name: what for name, what in image(root).items() if "systemd" not in name} == settings
    assert ("systemctl", "daemon-reload") in machine.ran


def ticks_of(make: functools.partial[object], machine: FakeMachine) -> int:
    make()
    return machine.ticks


@pytest.mark.parametrize("with_tuned", [False, True])
def test_cut_off_at_every_step_of_apply_a_revert_brings_back_every_byte(
    tmp_path: Path, with_tuned: bool
) -> None:
    whole = FakeMachine(tree(tmp_path / "whole"))
    if with_tuned:
        tuned(whole, "[sysctl]\nvm.swappiness=30\n")
    applied(whole)
    assert whole.ticks > 40
    for step in range(1, whole.ticks + 1):
        root = tree(tmp_path / str(step))
        machine = FakeMachine(root, crash_at=step)
        if with_tuned:
            tuned(machine, "[sysctl]\nvm.swappiness=30\n")
        before = image(root)
        with pytest.raises(Crash):
            applied(machine)
        after = FakeMachine(root)
        assert all(not one.problems for one in reverted(after)), step
        assert image(root) == before, f"cut off at step {step}"


def test_cut_off_at_every_step_of_revert_another_revert_brings_back_every_byte(tmp_path: Path) -> None:
    whole = FakeMachine(tree(tmp_path / "whole"))
    applied(whole)
    begun = whole.ticks
    reverted(whole)
    for step in range(1, whole.ticks - begun + 1):
        root = tree(tmp_path / str(step))
        before = image(root)
        applied(FakeMachine(root))
        with pytest.raises(Crash):
            reverted(FakeMachine(root, crash_at=step))
        reverted(FakeMachine(root))
        assert image(root) == before, f"cut off at step {step}"


def test_cut_off_at_every_step_of_keep_it_is_kept_or_waits_and_both_can_be_taken_back(tmp_path: Path) -> None:
    whole = FakeMachine(tree(tmp_path / "whole"))
    record = applied(whole)
    begun = whole.ticks
    kept(whole, record)
    for step in range(1, whole.ticks - begun + 1):
        root = tree(tmp_path / str(step))
        before = image(root)
        record = applied(FakeMachine(root))
        with pytest.raises(Crash):
            kept(FakeMachine(root, crash_at=step), record)
        machine = FakeMachine(root)
        (found,) = Records(machine).all()
        assert found.state in ("pending", "kept")
        assert (root / "proc/sys/vm/swappiness").read_text() == "10"
        reverted(machine)
        assert image(root) == before, f"cut off at step {step}"


def test_after_a_reboot_a_disk_is_found_by_its_serial_number(root: Path) -> None:
    """sdb has become sda and the other way round; the boot has applied the rule."""
    machine = FakeMachine(root)
    kept(machine, applied(machine, (READ_AHEAD, SCHEDULER)))
    for folder, up in (("sys/block", ".."), ("sys/class/block", "../..")):
        (root / folder / "sda").unlink()
        (root / folder / "sdb").unlink()
        (root / folder / "sda").symlink_to(f"{up}/devices/pci1/sdb")
        (root / folder / "sdb").symlink_to(f"{up}/devices/pci0/sda")
    assert [one.problems for one in reverted(FakeMachine(root))] == [()]
    assert (root / "sys/devices/pci1/sdb/queue/read_ahead_kb").read_text() == "128"
    assert (root / "sys/devices/pci1/sdb/queue/nr_requests").read_text() == "64"
    assert (root / "sys/devices/pci0/sda/queue/read_ahead_kb").read_text() == "128"


def test_a_limit_in_percent_comes_back_where_bytes_took_its_place(root: Path) -> None:
    before = image(root)
    machine = FakeMachine(root)
    applied(machine, (choice("sysctl", "268435456", key="vm.dirty_bytes"),))
    assert (root / "proc/sys/vm/dirty_ratio").read_text() == "0"
    reverted(machine)
    assert image(root) == before


def test_what_others_have_changed_since_is_left_alone_and_named_until_forced(root: Path) -> None:
    before = image(root)
    machine = FakeMachine(root)
    kept(machine, applied(machine, (SWAPPINESS, HUGE_PAGES)))
    (root / "proc/sys/vm/swappiness").write_text("42")
    conf = root / "etc/sysctl.d/99-zz-iotrial-01234567.conf"
    conf.write_text(conf.read_text() + "vm.x = 1\n")
    (record,) = Records(machine).all()
    drifts = {step.target: drift for step in record.steps if (drift := step.drift(machine))}
    assert drifts == {
        "/proc/sys/vm/swappiness": 'reads "42", not "10"',
        "/etc/sysctl.d/99-zz-iotrial-01234567.conf": "the file was edited since",
    }
    (first,) = reverted(machine)
    assert len(first.problems) == 2
    assert first.in_force
    assert (root / "proc/sys/vm/swappiness").read_text() == "42"
    (second,) = reverted(machine, force=True)
    assert not second.problems
    assert image(root) == before


def test_edits_of_fstab_by_others_stay_when_ours_are_taken_back(root: Path) -> None:
    machine = FakeMachine(root)
    kept(machine, applied(machine, (NOATIME,)))
    fstab = root / "etc/fstab"
    fstab.write_text(fstab.read_text().replace("UUID=0a1b", "UUID=9f9f") + "tmpfs /tmp tmpfs rw 0 0\n")
    assert [one.problems for one in reverted(machine)] == [()]
    assert fstab.read_text() == FSTAB.replace("UUID=0a1b", "UUID=9f9f") + "tmpfs /tmp tmpfs rw 0 0\n"


def test_a_value_that_the_kernel_does_not_take_takes_everything_back(root: Path) -> None:
    before = image(root)
    machine = FakeMachine(root)
    machine.refused.add("/sys/block/sdb/queue/read_ahead_kb")
    with pytest.raises(LabError, match='wrote "1024", kernel reports "128"') as caught:
        applied(machine)
    assert caught.value.hint == "everything was taken back"
    assert image(root) == before


def test_a_file_that_changes_between_plan_and_apply_is_not_overwritten(root: Path) -> None:
    machine = FakeMachine(root)
    record = record_of(machine)
    (root / "etc/fstab").write_text("# edited\n")
    with pytest.raises(LabError, match="meanwhile"):
        apply(Records(machine), record, functools.partial(arm, machine))
    assert (root / "etc/fstab").read_text() == "# edited\n"
    assert (root / "proc/sys/vm/swappiness").read_text() == "60"


def test_the_guard_stands_before_the_first_setting_is_changed(root: Path) -> None:
    machine = FakeMachine(root)
    seen = []

    def look(record: Record) -> None:
        seen.append(
            (
                image(root)["proc/sys/vm/swappiness"],
                machine.exists("/etc/systemd/system/iotrial-applied.service"),
            )
        )
        assert Records(machine).all()[0].state == "applying"

    apply(Records(machine), record_of(machine), look)
    assert [(value[2], unit) for value, unit in seen] == [(b"60", True)]  # type: ignore[index]


@pytest.mark.parametrize(
    ("state", "boot", "left_s", "due"),
    [
        ("pending", "boot-1", 600, False),
        ("pending", "boot-1", 0, True),
        ("pending", "boot-0", 600, True),
        ("applying", "boot-0", 600, True),
        ("kept", "boot-0", -600, False),
        ("reverted", "boot-0", -600, False),
    ],
)
def test_what_is_due(root: Path, state: str, boot: str, left_s: float, due: bool) -> None:
    machine = FakeMachine(root)
    record = record_of(machine, state=state, boot=boot, due_s=machine.uptime_s + left_s)
    assert record.is_due(machine) is due


def test_what_is_not_pending_cannot_be_kept(root: Path) -> None:
    machine = FakeMachine(root)
    record = applied(machine)
    (taken_back,) = reverted(machine)
    with pytest.raises(RequestError):
        kept(machine, taken_back)
    assert record.state == "pending"


def test_without_systemd_cron_covers_a_reboot_and_without_cron_it_is_said(tmp_path: Path) -> None:
    with_cron = FakeMachine(tree(tmp_path / "a", systemd=False, cron=True))
    before = image(with_cron.root)
    guard = watchdog.guard_for(with_cron)
    assert guard.covers_reboot
    applied(with_cron, (SWAPPINESS,))
    assert "@reboot root " in (with_cron.root / "etc/cron.d/iotrial-applied").read_text()
    reverted(with_cron)
    assert image(with_cron.root) == before
    bare = watchdog.guard_for(FakeMachine(tree(tmp_path / "b", systemd=False)))
    assert not bare.covers_reboot
    assert "REBOOT IS NOT COVERED" in bare.says


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("etc/systemd/system/iotrial-applied.service", "/dev/null"),
        ("etc/systemd/system/iotrial-applied.service", "missing"),
        ("etc/systemd/system/sysinit.target.wants/iotrial-applied.service", "../other.service"),
        ("etc/tuned/active_profile", "/dev/null"),
    ],
)
def test_a_masked_unit_and_a_link_in_the_place_of_a_file_are_refused_and_stay(
    root: Path, path: str, to: str
) -> None:
    machine = FakeMachine(root)
    if "tuned" in path:
        tuned(machine, "[sysctl]\nvm.swappiness=30\n")
        (root / path).unlink()
        (root / "etc/tuned/real").write_text("mine\n")
        to = "real"
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).symlink_to(to)
    before = image(root)
    with pytest.raises(RequestError, match=r"link to .*; nothing was changed"):
        applied(machine)
    assert str((root / path).readlink()) == to
    assert image(root) == before


@pytest.mark.parametrize("folder", ["etc/sysctl.d", "etc/tmpfiles.d", "etc/udev/rules.d"])
@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("real.d", None),
        ("gone.d", "is no folder"),
        ("file", "is no folder"),
        ("/run/x.d", "a link into /run, which is empty after a reboot"),
    ],
)
def test_a_folder_of_settings_that_is_a_link(root: Path, folder: str, to: str, problem: str | None) -> None:
    place = root / folder
    place.rename(place.with_name("real.d"))
    (place.parent / "file").touch()
    (root / "run/x.d").mkdir(parents=True, exist_ok=True)
    place.symlink_to(root / to[1:] if to.startswith("/") else to)
    before = image(root)
    machine = FakeMachine(root)
    if problem is None:
        applied(machine)
        assert [path for path in (place.parent / "real.d").iterdir() if "iotrial" in path.name]
        assert [one.problems for one in reverted(machine)] == [()]
    else:
        with pytest.raises(RequestError, match=rf"/{folder} .*{problem}; nothing was changed"):
            applied(machine)
    assert image(root) == before


SPOILED = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "no record": lambda path: path.write_bytes(b'{"trial": 1}'),
    "not text": lambda path: path.write_bytes(b"\xff\xfe" * 50),
    "deep": lambda path: path.write_bytes(b"[" * 100_000),
    "others could write it": lambda path: path.chmod(0o666),
    "of another user": lambda path: os.chown(path, 65534, 65534),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path, 0o600)),
    "a link": lambda path: (path.rename(path.with_suffix(".x")), path.symlink_to(path.with_suffix(".x"))),
    "of another trial": lambda path: path.write_bytes(
        path.read_bytes().splitlines()[0].replace(b'"trial":"', b'"trial":"x', 1)
    ),
    "a changed bit": lambda path: path.write_bytes(
        path.read_bytes().replace(b'"after":"10"', b'"after":"14"')
    ),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_record_that_cannot_be_used_is_named_and_stops_no_other(root: Path, how: str) -> None:
    """A pending trial is kept or taken back by everyone who does that, whatever is the matter with another's record."""
    if how == "of another user" and os.geteuid() != 0:
        pytest.skip("needs root")
    before = image(root)
    machine = FakeMachine(root)
    other = kept(machine, applied(machine, (replace(SWAPPINESS, trial="ffff0000"),)))
    spoiled = root / FOLDER.lstrip("/") / f"{other.short}.json"
    mine = applied(machine, (replace(HUGE_PAGES, trial="01234567"),))
    SPOILED[how](spoiled)
    found, damaged = Records(machine).read()
    assert [one.short for one in found] == [mine.short]
    assert [one.path for one in damaged] == [spoiled]
    late = FakeMachine(root)
    late.now_s = mine.due_s + 1
    watchdog.stand_by(mine.short, late)
    assert Records(machine).one(mine.short).state == "reverted"
    assert image(root)[THP] == before[THP]
    assert (root / "proc/sys/vm/swappiness").read_text() == "10"


@pytest.mark.parametrize("how", [*SPOILED, "removed"])
def test_a_waiting_process_whose_own_record_is_spoiled_takes_back_from_memory(root: Path, how: str) -> None:
    if how == "of another user" and os.geteuid() != 0:
        pytest.skip("needs root")
    before = image(root)
    machine = FakeMachine(root)
    mine = applied(machine, (HUGE_PAGES,))
    path = root / FOLDER.lstrip("/") / f"{mine.short}.json"
    waiting = watchdog.Waiting(Records(machine), mine.short)
    assert not waiting.is_over()
    if how == "removed":
        path.unlink()
    else:
        SPOILED[how](path)
    assert not waiting.is_over()
    machine.now_s = mine.due_s + 1
    ended = waiting.is_over()
    assert image(root) == before
    # a folder in its place cannot be replaced by a file: it says so and tries again
    assert ended is (how != "a folder")


def test_a_waiting_process_whose_record_cannot_be_read_for_a_moment_goes_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = image(root)
    machine = FakeMachine(root)
    mine = applied(machine, (HUGE_PAGES,))
    waiting = watchdog.Waiting(Records(machine), mine.short)
    with monkeypatch.context() as broken:
        broken.setattr(Records, "one", functools.partial(_fail, OSError(errno.EMFILE, "Too many open files")))
        assert not waiting.is_over()
    machine.now_s = mine.due_s + 1
    assert waiting.is_over()
    assert image(root) == before


def _fail(error: BaseException, *_: object) -> None:
    raise error


def test_taking_back_what_fails_first_is_tried_again(root: Path) -> None:
    before = image(root)
    machine = FakeMachine(root)
    mine = applied(machine, (HUGE_PAGES,))
    machine.now_s = mine.due_s + 1
    machine.refused.add(f"/{THP}")
    waiting = watchdog.Waiting(Records(machine), mine.short)
    assert not waiting.is_over()
    assert waiting.pause_s > 1
    machine.refused.clear()
    assert waiting.is_over()
    assert image(root) == before


def test_a_disk_that_refuses_the_record_does_not_stop_taking_back(root: Path) -> None:
    before = image(root)
    machine = FakeMachine(root)
    kept(machine, applied(machine, (SWAPPINESS, HUGE_PAGES)))
    machine.full.add(FOLDER)
    (first,) = reverted(machine)
    assert image(root) == before
    assert "No space left" in first.problems[0]
    machine.full.clear()
    (second,) = reverted(machine)
    assert not second.problems
    assert not [one for one in Records(machine).all() if one.in_force]


def test_a_missing_program_is_found_before_anything_is_changed(root: Path) -> None:
    before = image(root)
    for program in ("udevadm", "systemctl", "systemd-run"):
        machine = FakeMachine(root)
        machine.missing.add(program)
        with pytest.raises(LabError, match=f"{program} is not installed"):
            applied(machine, (READ_AHEAD,))
        assert image(root) == before
        assert not Records(machine).all()


@pytest.mark.parametrize("program", ["udevadm", "systemctl"])
def test_a_program_that_is_gone_since_does_not_keep_a_revert_from_its_end(root: Path, program: str) -> None:
    before = image(root)
    machine = FakeMachine(root)
    kept(machine, applied(machine, (READ_AHEAD,)))
    machine.missing.add(program)
    (done,) = reverted(machine)
    assert (done.state, done.problems) == ("reverted", ())
    assert image(root) == before


def test_force_ends_even_what_cannot_be_taken_back(root: Path) -> None:
    machine = FakeMachine(root)
    tuned(machine, "[sysctl]\nvm.swappiness=30\n")
    kept(machine, applied(machine, (SWAPPINESS,)))
    machine.missing.add("tuned-adm")
    (stuck,) = reverted(machine)
    assert stuck.state == "reverting"
    (ended,) = reverted(machine, force=True)
    assert ended.state == "reverted"
    assert "tuned-adm" in ended.problems[0]
    assert not [one for one in Records(machine).all() if one.in_force]


def test_ctrl_c_during_apply_takes_everything_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = image(root)
    machine = FakeMachine(root)
    plain = FakeMachine.write_live

    def interrupted(self: FakeMachine, path: str, value: str) -> None:
        plain(self, path, value)
        monkeypatch.setattr(FakeMachine, "write_live", plain)
        raise KeyboardInterrupt

    record = record_of(machine)
    monkeypatch.setattr(FakeMachine, "write_live", interrupted)
    with pytest.raises(KeyboardInterrupt):
        apply(Records(machine), record, functools.partial(arm, machine))
    assert image(root) == before


def test_a_clock_set_back_keeps_nothing_longer_and_order_does_not_matter(root: Path) -> None:
    """Times of day only name; the limit is by the clock since boot. Two trials edit fstab, the second one dated earlier."""
    before = image(root)
    machine = FakeMachine(root)
    first = record_of(machine, (replace(NOATIME, trial="aaaa0000"),), trial="aaaa0000")
    kept(machine, apply(Records(machine), first, functools.partial(arm, machine)))
    second = record_of(
        machine, (replace(NOATIME, trial="bbbb0000"),), at="/", trial="bbbb0000", applied="1970-01-01T00:00:00+00:00",
        due="1970-01-01T00:10:00+00:00",
    )  # fmt: skip
    apply(Records(machine), second, functools.partial(arm, machine))
    assert not second.is_due(machine)
    machine.now_s = second.due_s
    assert second.is_due(machine)
    assert [one.problems for one in reverted(machine)] == [(), ()]
    assert {k: v for k, v in image(root).items() if k != "etc/fstab"} == {
        k: v for k, v in before.items() if k != "etc/fstab"
    }
    assert (root / "etc/fstab").read_text() == FSTAB


class StoppedMachine(FakeMachine):
    """A machine on which a step stops the process, as Ctrl-Z does."""

    def tick(self) -> None:
        super().tick()
        if self.ticks == 20:
            os.kill(os.getpid(), signal.SIGSTOP)


@pytest.fixture
def soon() -> Iterator[None]:
    """End a test that hangs."""
    signal.signal(signal.SIGALRM, functools.partial(_fail, Crash("it hangs")))
    signal.alarm(20)
    yield
    signal.alarm(0)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    "name", ["etc/sysctl.d/50-a.conf", "etc/udev/rules.d/50-a.rules", "etc/tmpfiles.d/a.conf"]
)
@pytest.mark.parametrize("link", [None, "/dev/zero", "/dev/null"])
def test_a_fifo_or_a_device_among_the_files_of_others_is_no_reason_to_hang(
    root: Path, name: str, link: str | None
) -> None:
    if link is None:
        os.mkfifo(root / name)
    else:
        (root / name).symlink_to(link)
    before = names_of(root)
    applied(FakeMachine(root))
    assert [one.problems for one in reverted(FakeMachine(root))] == [()]
    assert names_of(root) == before


def names_of(root: Path) -> list[str]:
    return sorted(str(path) for path in (root / "etc").rglob("*"))


@pytest.mark.usefixtures("soon")
def test_a_fifo_in_the_place_of_a_file_that_was_written_keeps_nothing_else(root: Path) -> None:
    machine = FakeMachine(root)
    record = applied(machine)
    (path,) = [path for path in (root / "etc/sysctl.d").iterdir() if "iotrial" in path.name]
    path.unlink()
    os.mkfifo(path)
    machine.now_s = record.due_s + 1
    waiting = watchdog.Waiting(Records(machine), record.short)
    assert not waiting.is_over()
    assert (root / "proc/sys/vm/swappiness").read_text() == "60"
    assert (root / "etc/fstab").read_text() == FSTAB
    ((problem,),) = [one.problems for one in Records(machine).all()]
    assert f"{path.name}: expected a file, found a FIFO" in problem


def test_what_tuned_writes_is_on_the_disk_before_the_next_step(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tuned-adm does not sync its files: after a power cut they could be empty, which looks like `tuned-adm off`."""
    machine = FakeMachine(root)
    tuned(machine, "[sysctl]\nvm.swappiness=30\n")
    unsynced: set[Path] = set()
    states = root / "etc/tuned/active_profile", root / "etc/tuned/profile_mode"

    def synced(descriptor: int) -> None:
        unsynced.discard(Path(str(Path(f"/proc/self/fd/{descriptor}").readlink()).removesuffix(DRAFT)))

    def run(*argv: str, timeout_s: float = 60) -> None:
        FakeMachine.run(machine, *argv)
        if argv[0] == "tuned-adm":
            unsynced.update(states)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(machine, "run", run)
    record = applied(machine, (SWAPPINESS,))
    assert states[0].read_text().startswith("iotrial-")
    assert not unsynced
    kept(machine, record)
    reverted(machine)
    assert states[0].read_text() == "mine\n"
    assert not unsynced


def test_early_at_boot_the_profile_of_tuned_comes_back_without_tuned(root: Path) -> None:
    """There tuned-adm waits for D-Bus until its time is up."""
    machine = FakeMachine(root)
    tuned(machine, "[sysctl]\nvm.swappiness=30\n")
    applied(machine, (SWAPPINESS,))
    (root / "run/tuned/tuned.pid").unlink()
    booted = FakeMachine(root)
    assert [one.problems for one in reverted(booted)] == [()]
    assert (root / "etc/tuned/active_profile").read_text() == "mine\n"
    assert "tuned-adm" not in {argv[0] for argv in booted.ran}


def test_an_apply_that_is_stopped_half_way_is_taken_back_in_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iotrial.tune.applied.HELD_S", 0.5)
    before = image(root)
    stopped = os.fork()
    if stopped == 0:
        with Records(StoppedMachine(root)).lock():
            applied(StoppedMachine(root))
        os._exit(1)
    try:
        assert os.WIFSTOPPED(os.waitpid(stopped, os.WUNTRACED)[1])
        assert image(root) != before
        machine = FakeMachine(root)
        records = Records(machine)
        with pytest.raises(Busy, match=f"process {stopped} has been changing"), records.lock():
            pass
        (found,) = records.all()
        waiting = watchdog.Waiting(records, found.short)
        assert not waiting.is_over()
        assert (os.waitpid(stopped, os.WNOHANG)) == (0, 0)
        machine.now_s = found.due_s + 1
        assert waiting.is_over()
        assert os.WTERMSIG(os.waitpid(stopped, 0)[1]) == signal.SIGKILL
        assert image(root) == before
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)


@pytest.mark.parametrize("path", ["/proc/sys/vm/swappiness", "/proc/self/mountinfo", "/proc/cpuinfo"])
def test_a_kernel_file_is_read_whole(path: str) -> None:
    """The kernel refuses to read a sysctl into a buffer of megabytes."""
    content = Machine().read(path)
    assert content is not None
    assert content.split()[0] == Path(path).read_bytes().split()[0]
    if path != "/proc/cpuinfo":  # which holds frequencies
        assert content == Path(path).read_bytes()
