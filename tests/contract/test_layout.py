"""Files laid out in pieces, defragmented and copied anew, on each of the file systems, and held against filefrag."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.errors import KnobError, UnsupportedLevel
from iotrial.lab import registry
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.knob import FileSelection, Subject, WorkDraft
from iotrial.lab.lock import MachineLock
from iotrial.lab.place import FileSet
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.probe.client import Probe
from iotrial.study.model import FilesWork, Setting

pytestmark = pytest.mark.root
MIB = 1 << 20
FILES, SIZE = 4, 2 * MIB + 123


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with MachineLock(), Probe(isolate=True) as probe:
        target = Target(probe)
        target.call("mkdir", path="/run/iotrial", mode="0755")
        target.mount("iotrial", "/run/iotrial", "tmpfs", ["mode=0755", "size=1m"])
        yield target
        target.unmount("/run/iotrial")
        target.call("remove", path="/run/iotrial", recursive=True)


@pytest.fixture(scope="module", params=["ext4", "xfs", "btrfs"])
def subject(request: pytest.FixtureRequest, target: Target, disk_folder: Path) -> Iterator[Subject]:
    kind = request.param
    journal = Journal(disk_folder / f"journal-of-{kind}")
    place = ImagePlace(
        kind, target, journal, folder=str(disk_folder), mount_point=f"/run/iotrial/{kind}", filesystem=kind,
        size_bytes=160 * MIB,
    )  # fmt: skip
    place.open()
    place.make_files(FileSet("s", f"{place.root}/s", FILES, SIZE, "text", 1), seed=7)
    yield Subject(target, place, journal, FileSelection("s", None, SIZE, FILES), WorkDraft())
    place.close()
    assert not any(r.kept for r in restore(journal, target))


def by_filefrag(subject: Subject) -> int:
    done = subject.target.run(["filefrag", *(f"{subject.place.root}/s/f{n:06}" for n in range(FILES))])
    return sum(int(count) for count in re.findall(r": (\d+) extents? found", done.stdout))


def turned(name: str, value: str, subject: Subject) -> None:
    setting = Setting(name, value)
    knob = registry.knob(name)
    knob.write(subject, setting, knob.parse(setting))
    knob.verify(subject, setting, knob.parse(setting))


@pytest.mark.parametrize(("value", "extents"), [("0 %", 4), ("50 %", 8), ("99 %", 400), ("99.2 %", 500)])
def test_files_lie_in_as_many_pieces_as_were_asked_for_and_hold_what_they_held(
    subject: Subject, value: str, extents: int
) -> None:
    turned("file.fragmentation", value, subject)
    found = by_filefrag(subject)
    assert abs(found - extents) <= extents // 20
    assert found == subject.work.evidence["extents"]
    assert subject.target.call("fileset_verify", set="s")["files"] == FILES


def test_defragmented_and_rewritten_files_are_whole_and_untouched_ones_stay_in_pieces(
    subject: Subject,
) -> None:
    for value, within in (("untouched", (38, 42)), ("rewritten", (4, 8)), ("defragmented", (4, 12))):
        subject.work = WorkDraft()
        turned("file.fragmentation", "90 %", subject)
        turned("file.defragment", value, subject)
        registry.knob("file.fragmentation").verify(subject, Setting("file.fragmentation", "90 %"), "90 %")
        assert within[0] <= by_filefrag(subject) <= within[1], value
        assert 38 <= subject.work.evidence["extents_before"] <= 42
        assert subject.work.evidence["extents"] == by_filefrag(subject)
        assert subject.work.evidence["relayout_time"] > 0
        assert subject.target.call("fileset_verify", set="s")["files"] == FILES
        names = subject.target.call("list", path=f"{subject.place.root}/s")["names"]
        assert sorted(names) == [f"f{n:06}" for n in range(FILES)]


def test_a_layout_that_is_another_is_an_error_that_counts_it(subject: Subject) -> None:
    subject.work = WorkDraft()
    turned("file.fragmentation", "50 %", subject)
    with pytest.raises(KnobError, match=r"8 extents of 4 files"):
        registry.knob("file.fragmentation").verify(subject, Setting("file.fragmentation", "90 %"), "90 %")


def test_a_share_that_these_files_cannot_have_is_refused() -> None:
    knob = registry.knob("file.fragmentation")
    with pytest.raises(UnsupportedLevel, match="1 extents it is 0 %"):
        knob.suits(Setting(knob.name, "5 %"), FilesWork((), files=1), MIB)
    with pytest.raises(UnsupportedLevel, match="only 256 blocks"):
        knob.suits(Setting(knob.name, "99.9 %"), FilesWork((), files=1), MIB)
    knob.suits(Setting(knob.name, "5 %"), FilesWork((), files=20), MIB)
    for value in ("100 %", "-1 %", "5", "99.999 %", "1e1 %"):
        with pytest.raises(UnsupportedLevel, match="no share"):
            knob.parse(Setting(knob.name, value))
