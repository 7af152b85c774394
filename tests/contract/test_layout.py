"""Block layout: fragmented, defragmented and rewritten files, aged file systems; each checked with other
programs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.errors import KnobError, UnsupportedLevel
from iotrial.knobs.knob import FileSelection, RunContext, WorkDraft
from iotrial.lab import registry
from iotrial.lab.image import ImagePlace
from iotrial.lab.journal import Journal
from iotrial.lab.place import FileSet
from iotrial.lab.restore import restore
from iotrial.lab.target import Target
from iotrial.study.model import Setting
from iotrial.workloads.files import FilesWork
from values import replace

pytestmark = pytest.mark.root
MIB = 1 << 20
FILES, SIZE = 4, 2 * MIB + 123


@pytest.fixture(scope="module", params=["ext4", "xfs", "btrfs"])
def context(request: pytest.FixtureRequest, target: Target, disk_folder: Path) -> Iterator[RunContext]:
    kind = request.param
    journal = Journal(disk_folder / f"journal-of-{kind}")
    place = ImagePlace(
        kind, target, journal, folder=str(disk_folder), mount_point=f"/run/iotrial/{kind}", filesystem=kind,
        size_bytes=160 * MIB,
    )  # fmt: skip
    place.open()
    place.make_files(FileSet("s", f"{place.root}/s", FILES, SIZE, "text", 1), seed=7)
    yield RunContext(target, place, journal, FileSelection("s", None, SIZE, FILES), WorkDraft())
    place.close()
    assert not any(r.kept for r in restore(journal, target))


def by_filefrag(context: RunContext, *files: int) -> int:
    names = [f"{context.place.root}/s/f{n:06}" for n in files or range(FILES)]
    done = context.target.run(["filefrag", *names])
    return sum(int(count) for count in re.findall(r": (\d+) extents? found", done.stdout))


def turned(name: str, value: str, context: RunContext) -> None:
    setting = Setting(name, value)
    knob = registry.knob(name)
    knob.write(context, setting, knob.parse(setting))
    knob.verify(context, setting, knob.parse(setting))


@pytest.mark.parametrize(("value", "extents"), [("0 %", 4), ("50 %", 8), ("99 %", 400), ("99.2 %", 500)])
def test_files_lie_in_as_many_pieces_as_were_asked_for_and_hold_what_they_held(
    context: RunContext, value: str, extents: int
) -> None:
    turned("file.fragmentation", value, context)
    found = by_filefrag(context)
    assert abs(found - extents) <= extents // 20
    assert found == context.work.evidence["extents"]
    assert context.target.call("fileset_verify", set="s")["files"] == FILES


def test_defragmented_and_rewritten_files_are_whole_and_untouched_ones_stay_in_pieces(
    context: RunContext,
) -> None:
    context.place.syncfs()  # delayed allocation: a file that is not written back has no blocks yet
    whole = by_filefrag(context, 0)
    one = replace(context, files=FileSelection("s", (1,), SIZE, 1))  # e4defrag takes seconds per file
    for value, within in (("untouched", (95, 105)), ("rewritten", (1, 2)), ("defragmented", (1, 4))):
        one.work = WorkDraft()
        turned("file.fragmentation", "99 %", one)
        turned("file.defragment", value, one)
        registry.knob("file.fragmentation").verify(one, Setting("file.fragmentation", "99 %"), "99 %")
        assert within[0] <= by_filefrag(context, 1) <= within[1], value
        assert 95 <= one.work.evidence["extents_before"] <= 105
        assert one.work.evidence["extents"] == by_filefrag(context, 1)
        assert (one.work.evidence["relayout_time"] > 0) == (value != "untouched")
        assert context.target.call("fileset_verify", set="s")["files"] == FILES
        names = context.target.call("list", path=f"{context.place.root}/s")["names"]
        assert sorted(names) == [f"f{n:06}" for n in range(FILES)]
    assert by_filefrag(context, 0) == whole


def test_a_layout_that_is_another_is_an_error_that_counts_it(context: RunContext) -> None:
    context.work = WorkDraft()
    turned("file.fragmentation", "50 %", context)
    with pytest.raises(KnobError, match=r"8 extents of 4 files"):
        registry.knob("file.fragmentation").verify(context, Setting("file.fragmentation", "90 %"), "90 %")


def test_a_share_that_these_files_cannot_have_is_refused() -> None:
    knob = registry.knob("file.fragmentation")
    with pytest.raises(UnsupportedLevel, match="1 extents it is 0 %"):
        knob.suits(Setting(knob.name, "5 %"), FilesWork(operations=(), files=1), MIB)
    with pytest.raises(UnsupportedLevel, match="only 256 blocks"):
        knob.suits(Setting(knob.name, "99.9 %"), FilesWork(operations=(), files=1), MIB)
    knob.suits(Setting(knob.name, "5 %"), FilesWork(operations=(), files=20), MIB)
    for value in ("100 %", "-1 %", "5", "99.999 %", "1e1 %"):
        with pytest.raises(UnsupportedLevel, match="not a share"):
            knob.parse(Setting(knob.name, value))


def aged(context: RunContext, value: str) -> tuple[float, str]:
    """Recreate the file system at this age. Return the percentage used according to stat(1), and names and
    sizes of all files."""
    assert isinstance(context.place, ImagePlace)
    context.place.want_filesystem(context.place.filesystem)
    setting, knob = Setting("filesystem.age", value), registry.knob("filesystem.age")
    knob.write(context, setting, value)
    context.place.format()
    knob.verify(context, setting, value)
    blocks = context.target.run(["stat", "-f", "-c", "%b %f", context.place.root]).stdout.split()
    shown = context.target.run(["find", f"{context.place.root}/.aged", "-type", "f", "-printf", "%f %s\n"])
    return 100 * (1 - int(blocks[1]) / int(blocks[0])), "\n".join(sorted(shown.stdout.splitlines()))


def test_an_aged_file_system_is_as_full_as_was_asked_for_and_the_same_each_time(context: RunContext) -> None:
    full, first = aged(context, "20 %")
    assert 16 <= full <= 24
    assert aged(context, "20 %")[1] == first
    sizes = [int(line.split()[1]) for line in first.splitlines()]
    assert {4096 << n for n in range(9)} <= set(sizes)
    # files left from ten rounds, nine of them followed by removals
    assert int(first.splitlines()[-1].split()[0]) > 2 * len(sizes)
    assert aged(context, "fresh")[1] == ""


def test_a_trim_tells_the_device_what_is_free_after_all_of_it_was_written(context: RunContext) -> None:
    def counted() -> tuple[int, int]:
        # Documentation/block/stat.rst: sectors written, sectors discarded
        numbers = Path(f"/sys/block/{context.place.device}/stat").read_text().split()
        return int(numbers[6]) * 512, int(numbers[13]) * 512

    output = context.target.run(["stat", "-f", "-c", "%a %S", context.place.root]).stdout.split()
    free = int(output[0]) * int(output[1])  # a small ext4 has 1 KiB blocks
    for value in ("none", "fstrim"):
        written, discarded = counted()
        turned("filesystem.trim", value, context)
        more_written, more_discarded = (a - b for a, b in zip(counted(), (written, discarded), strict=True))
        assert more_written > 0.5 * free
        assert more_discarded == context.work.trimmed_bytes
        assert (more_discarded > 0.5 * free) == (value == "fstrim")
    left = context.target.call("list", path=context.place.root)["names"]
    assert not [name for name in left if "free" in name]
