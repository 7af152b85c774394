"""What a client acknowledges against what is found after a cut; which sync a trace shows to be missing; disks by name."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from iotrial.errors import LabError
from iotrial.powercut.campaign import Recording
from iotrial.powercut.missing_sync import Operation, suspects
from iotrial.powercut.service import Ledger, _mark_of, acknowledgements, command_of

BEGINS = "iotrial: begins "
#: the marks of a whole run: k is put twice, deleted and put again; "alone" is an operation without a value
RUN = (f"{BEGINS}k 1", "k 1", "alone", f"{BEGINS}k 2", "k 2", f"{BEGINS}k -", "k -", f"{BEGINS}k 3", "k 3")


def compare(
    before: int, found: Mapping[str, str], run: Sequence[str] = RUN
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    findings = Ledger.of(run).compare(run[:before], {"alone": "", **found})
    return findings.lost, findings.corrupt


@pytest.mark.parametrize(
    ("before", "found", "lost", "corrupt"),
    [
        (2, {"k": "1"}, (), ()),
        (2, {}, ("k 1",), ()),
        (2, {"k": "junk"}, (), ("k 1: found junk",)),
        # the next operation may have been done
        (4, {"k": "2"}, (), ()),
        # not the one after that
        (4, {}, ("k 1",), ()),
        (5, {"k": "1"}, ("k 2: found 1, an older value",), ()),
        (6, {}, (), ()),
        # a deletion that was acknowledged must hold
        (7, {"k": "2"}, ("k -: found 2, an older value",), ()),
        (7, {"k": "3"}, (), ()),
        (9, {}, ("k 3",), ()),
    ],
)
def test_what_is_lost_and_what_may_be_in_flight(
    before: int, found: dict[str, str], lost: tuple[str, ...], corrupt: tuple[str, ...]
) -> None:
    assert compare(before, found) == (lost, corrupt)


def test_an_operation_that_began_before_the_cut_and_is_never_acknowledged_may_have_been_done() -> None:
    run = ("k 1", f"{BEGINS}k 9", "other 1")
    assert compare(2, {"k": "9", "other": "1"}, run) == ((), ())
    assert compare(1, {"k": "9"}, run) == ((), ("k 1: found 9",))


def test_a_reader_that_may_be_behind_allows_what_the_run_did_next() -> None:
    """Two operations were sent that no mark shows yet: the second deleted what was acknowledged before."""
    run = ("k 1", f"{BEGINS}k 2", "k 2", f"{BEGINS}k -", "k -")
    exact, late = Ledger.of(run), Ledger.of(run, late=True)
    assert exact.compare(run[:1], {}).lost == ("k 1",)
    assert late.compare(run[:1], {}).lost == ()
    assert late.compare(run[:1], {"k": "junk"}).corrupt == ("k 1: found junk",)


def printed(*writes: tuple[int, int, int, int], lines: tuple[tuple[int, str], ...]) -> list[tuple[int, str]]:
    """Return the times of lines, from writes of the client: offset, length, start and end in ns."""
    ops = tuple(
        Operation("write", start, end, "output/client", "", offset, length, 0, None, True)
        for offset, length, start, end in writes
    )
    return Recording(Path("log"), lines, ops, 0, 1.0).printed


def test_lines_have_the_times_of_the_writes_that_printed_them() -> None:
    writes = ((0, 10, 100, 110), (10, 10, 200, 210), (20, 20, 300, 310))
    lines = ((10, f"{BEGINS}k 1"), (20, "k 1"), (30, f"{BEGINS}k 2"), (40, "k 2"))
    assert printed(*writes, lines=lines) == [
        (100, f"{BEGINS}k 1"),
        (210, "k 1"),
        (300, f"{BEGINS}k 2"),
        (310, "k 2"),
    ]


def test_lines_that_no_traced_write_printed_have_no_times() -> None:
    assert printed((0, 10, 100, 110), lines=((10, "k 1"), (20, "k 2"))) == []
    assert printed(lines=((10, "k 1"),)) == []


def test_a_key_without_a_value_is_lost_if_it_is_not_there() -> None:
    assert Ledger.of(RUN).compare(RUN[:3], {"k": "1"}).lost == ("alone",)


def test_lines_of_a_client() -> None:
    assert _mark_of("acknowledged mail-17 abc") == "mail-17 abc"
    assert _mark_of("begins mail-17 abc") == f"{BEGINS}mail-17 abc"
    assert _mark_of("connected to acknowledged") is None
    assert acknowledgements(RUN) == ("k 1", "alone", "k 2", "k -", "k 3")


@pytest.mark.parametrize("line", ["acknowledged " + "x" * 490, "acknowledged iotrial: ended"])
def test_an_item_that_is_too_long_or_pretends_to_be_a_mark_is_refused(line: str) -> None:
    with pytest.raises(LabError, match="an item of the client"):
        _mark_of(line)


def test_one_word_with_blanks_is_a_line_of_a_shell() -> None:
    assert command_of(["./server {dir} | tee log"]) == ("sh", "-c", "./server {dir} | tee log")
    assert command_of(["./server", "{dir}"]) == ("./server", "{dir}")
    assert command_of(["./{name}"]) == ("./{name}",)


# -- missing syncs. A millisecond is 1_000_000; the operation begins at 10 ms and is acknowledged at 20 ms.

MS = 1_000_000


def op(call: str, at_ms: float, path: str, **more: object) -> Operation:
    fields: dict[str, object] = {
        "other": "", "offset": 0, "length": 8 if call == "write" else 0, "flags": 0, "handle": None, "existed": True
    }  # fmt: skip
    return Operation(call, int(at_ms * MS), int((at_ms + 0.5) * MS), path, **{**fields, **more})  # type: ignore[arg-type]


def names(*ops: Operation, cut_ms: float = 21, newest: bool = True) -> list[str]:
    cut = (int((cut_ms - 2) * MS), int(cut_ms * MS))
    found = suspects(ops, since_ns=10 * MS, acknowledged_ns=20 * MS, cut_ns=cut, newest=newest)
    return [one.name for one in found]


def test_a_file_without_a_sync() -> None:
    assert names(op("write", 12, "log")) == ["no sync of the file"]


def test_a_sync_before_the_write_is_none_for_it() -> None:
    assert names(op("fsync", 11, "log"), op("write", 12, "log")) == ["no sync of the file"]


def test_a_write_that_ends_while_a_sync_is_under_way_may_be_missed_by_it() -> None:
    early = replace(op("fsync", 11, "log"), end_ns=14 * MS)
    assert names(op("write", 11.5, "log"), early) == ["no sync of the file"]


def test_a_sync_that_ends_after_the_acknowledgement() -> None:
    late = replace(op("fsync", 13, "log"), end_ns=24 * MS)
    assert names(op("write", 12, "log"), late) == ["acknowledged before its sync"]


def test_a_write_that_begins_after_the_acknowledgement() -> None:
    assert names(op("write", 20.2, "log"), op("fsync", 20.8, "log")) == ["acknowledged before it was written"]


@pytest.mark.parametrize("flags", [os.O_DSYNC, os.O_SYNC])
def test_a_file_opened_for_synchronous_writes_needs_no_sync(flags: int) -> None:
    opened = op("open", 5, "log", flags=flags, handle=3)
    assert names(opened, op("write", 12, "log", handle=3)) == []
    assert names(opened, op("write", 12, "log", handle=4)) == ["no sync of the file"]


def test_a_new_file_in_a_folder_that_is_not_synced() -> None:
    new = op("open", 11, "d/new", flags=os.O_CREAT, existed=False)
    assert names(new, op("write", 12, "d/new"), op("fsync", 13, "d/new")) == ["no sync of the folder"]
    assert names(new, op("write", 12, "d/new"), op("fsync", 13, "d/new"), op("fsync", 14, "d")) == []


def test_a_rename_of_data_that_are_not_synced() -> None:
    renamed = op("rename", 14, "d/f.new", other="d/f")
    assert names(op("write", 12, "d/f.new"), renamed, op("fsync", 15, "d")) == [
        "renamed before its data were synced"
    ]
    assert names(op("write", 12, "d/f.new"), op("fsync", 13, "d/f.new"), renamed) == ["no sync of the folder"]


def test_a_deletion_in_a_folder_that_is_not_synced() -> None:
    assert names(op("unlink", 12, "d/f")) == ["no sync of the folder"]


def test_a_file_that_is_emptied_before_it_is_written_again() -> None:
    safe = (op("write", 12, "all"), op("fsync", 13, "all"))
    again = op("open", 30, "all", flags=os.O_TRUNC)
    assert names(*safe, again, cut_ms=31, newest=False) == ["emptied before it was written again"]
    assert names(*safe, again, op("write", 30.6, "all"), op("fsync", 32, "all"), cut_ms=31, newest=False) == [
        "emptied before it was written again"
    ]


def test_a_page_that_is_overwritten_in_place() -> None:
    safe = (op("write", 12, "pages", length=4096), op("fsync", 13, "pages"))
    assert names(*safe, op("write", 30, "pages", length=4096), cut_ms=31, newest=False) == [
        "overwritten in place"
    ]


def test_a_page_that_was_overwritten_and_synced_before_the_cut_is_no_reason() -> None:
    ops = (
        op("write", 12, "p"),
        op("fsync", 13, "p"),
        op("write", 30, "p"),
        op("fsync", 31, "p"),
        op("write", 80, "q"),
    )
    assert names(*ops, cut_ms=81, newest=False) != ["overwritten in place"]


def test_a_sync_of_everything_counts_for_every_file() -> None:
    assert names(op("write", 12, "log"), op("sync", 13, "")) == []


def test_what_was_written_earlier_and_never_synced_is_named_if_nothing_else_is() -> None:
    assert names(op("write", 2, "old")) == ["no sync of the file"]
