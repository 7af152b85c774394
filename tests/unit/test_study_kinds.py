"""Workload kinds: impossible sequences of operations, checked against the kernel itself, and their reference."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iotrial.errors import UnknownName
from iotrial.study.model import Better, Scale
from iotrial.study.reference import describe
from iotrial.study.schema import Problem, keys_of, metas_of
from iotrial.study.work import Step, kind, kinds, own_keys, work_of
from iotrial.workloads.command import CommandWork
from iotrial.workloads.files import OPERATIONS, FilesWork, check_sequence
from iotrial.workloads.random import RandomWork


def test_every_kind_of_the_folder_is_found() -> None:
    assert {"command", "files"} <= kinds().keys()
    with pytest.raises(UnknownName) as caught:
        kind("file")
    assert '"files"' in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        (["read", "close"], '"read" before the file is open'),
        (["close"], '"close" without an open file'),
        (["create", "read", "close"], '"read" of a file that is open for writing only'),
        (["open-write", "read-to-end", "close"], "open for writing only"),
        (["open", "write-byte", "close"], "open for reading only"),
        (["open", "open", "close"], "while the file is still open"),
        (["open", "read"], "never closed"),
        (["unlink", "stat"], '"stat" has no file'),
        (["stat", "create", "close"], '"create" of a file that already exists'),
        (["open-write", "write-byte", "write-all", "close"], "after another write"),
        (["fsync"], '"fsync" before the file is open'),
        (["opne", "close"], 'no operation is called "opne"'),
    ],
)
def test_a_sequence_that_cannot_work_is_refused_where_it_fails(operations: list[str], message: str) -> None:
    with pytest.raises(Problem) as caught:
        check_sequence(tuple(operations))
    assert message in caught.value.message


def test_what_works_once_may_fail_when_replicates_repeat_it() -> None:
    check_sequence(("create", "write-byte", "fsync", "close"))
    with pytest.raises(Problem, match="when the replicates repeat it"):
        check_sequence(("create", "write-byte", "fsync", "close"), repeated=True)
    check_sequence(("create", "write-byte", "close", "unlink"), repeated=True)


@pytest.mark.parametrize("cache", ["cold-data", "cold-files", "cold-system"])
def test_from_a_cold_cache_a_work_is_done_once_unless_each_time_is_elsewhere(cache: str) -> None:
    files = work_of(FilesWork, {"operations": ["stat"], "replicates": 5})
    assert [files.repeats_from(state) for state in (cache, "warm", "as-is")] == [1, 5, 5]
    assert work_of(RandomWork, {"operations": 10, "replicates": 5}).repeats_from(cache) == 5


def _kernel_accepts(operations: tuple[str, ...], folder: Path, *, there: bool) -> bool:
    """Run the sequence on a real file that exists at first or not. This is the truth that the check must match."""
    path = folder / "f"
    path.unlink(missing_ok=True)
    if there:
        path.write_bytes(b"0123456789")
    flags = {"open": os.O_RDONLY, "open-write": os.O_WRONLY, "open-truncate": os.O_WRONLY | os.O_TRUNC}
    opened: list[int] = []
    try:
        for operation in operations:
            if operation in flags or operation == "create":
                if opened:
                    return False  # the kernel would allow it; the descriptor would leak
                opened.append(os.open(path, flags.get(operation, os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
            elif operation in ("read", "read-to-end"):
                os.read(opened[-1], 100)
            elif operation == "sendfile":
                with Path(os.devnull).open("wb") as sink:
                    os.sendfile(sink.fileno(), opened[-1], None, 100)
            elif operation == "write-byte":
                os.write(opened[-1], b"x")
            elif operation == "write-all":
                if os.lseek(opened[-1], 0, os.SEEK_CUR):
                    return False  # the kernel would append it to the existing data
                os.write(opened[-1], b"0123456789")
            elif operation == "fstat":
                os.fstat(opened[-1])
            elif operation == "fsync":
                os.fsync(opened[-1])
            elif operation == "close":
                os.close(opened.pop())
            elif operation == "unlink":
                path.unlink()
            else:
                path.stat()
    except (OSError, IndexError):
        return False
    finally:
        left = bool(opened)
        for descriptor in opened:
            os.close(descriptor)
    return not left


_sequences = st.lists(
    st.sampled_from(sorted(set(OPERATIONS) - {"readlink", "getdents"})), min_size=1, max_size=6
)


@settings(deadline=None)
@given(_sequences)
def test_the_check_accepts_a_sequence_exactly_when_the_kernel_does(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    sequence = tuple(operations)
    works = any(_kernel_accepts(sequence, folder, there=there) for there in (True, False))
    try:
        check_sequence(sequence)
        accepted = True
    except Problem:
        accepted = False
    assert accepted == works


def test_files_that_a_run_makes_itself_have_to_be_gone_at_its_end() -> None:
    whole = ["create", "write-all", "close"]
    with pytest.raises(Problem, match="the next run would find them"):
        work_of(FilesWork, {"operations": whole})
    work_of(FilesWork, {"operations": [*whole, "unlink"]})
    work_of(FilesWork, {"operations": ["unlink", *whole]})


def test_c_sources_have_whole_units() -> None:
    with pytest.raises(Problem, match="inside a function"):
        work_of(FilesWork, {"operations": ["stat"], "content": "c", "size": "1000 B"})
    work_of(FilesWork, {"operations": ["stat"], "content": "c", "size": "3 KiB"})


def test_what_a_command_writes_to_a_folder_of_its_own_is_counted() -> None:
    writes = CommandWork(steps=(Step("command", ("cp", "{file}", "{out}")),))
    reads = CommandWork(steps=(Step("command", ("cat", "{file}")),))
    new = {"out_bytes", "out_files", "device_write_bytes_synced"}
    for work in (writes, CommandWork(steps=reads.steps, cwd="{out}")):
        assert new < {spec.name for spec in work.responses()}
    assert not new & {spec.name for spec in reads.responses()}


def test_a_command_that_writes_to_a_folder_of_its_own_has_no_warm_up() -> None:
    keys = {"files": 1, "size": "4 KiB", "warmup": 1}
    assert work_of(CommandWork, {"argv": ["cat", "{file}"], **keys}).warmup == 1
    with pytest.raises(Problem, match="is only for a command without"):
        work_of(CommandWork, {"argv": ["cp", "{file}", "{out}"], **keys})


def test_a_files_workload_has_a_time_for_each_operation_that_it_uses() -> None:
    specs = FilesWork(operations=("open", "read-to-end", "read-to-end", "close")).responses()
    assert [spec.name for spec in specs] == [
        *("wall", "open_time", "read_to_end_time", "close_time", "cpu", "user", "sys"),
        *("device_read_bytes", "device_write_bytes", "device_write_bytes_synced"),
    ]
    by_name = {spec.name: spec for spec in specs}
    assert (by_name["wall"].unit, by_name["wall"].scale, by_name["wall"].better) == (
        "s",
        Scale.LOG,
        Better.LOWER,
    )
    device = by_name["device_write_bytes_synced"]
    assert (device.unit, device.scale, device.better) == ("bytes", Scale.DIFFERENCE, Better.LOWER)


def test_a_command_workload_has_times_by_step_only_with_several_steps() -> None:
    one = CommandWork(steps=(Step("command", ("true",)),))
    two = CommandWork(steps=(Step("a", ("true",)), Step("b", ("false",))))
    assert not [spec for spec in one.responses() if "." in spec.name]
    assert [spec.name for spec in two.responses() if "." in spec.name] == [
        "wall.a",
        "cpu.a",
        "wall.b",
        "cpu.b",
    ]
    assert {"faults_major", "faults_minor", "max_rss"} < {spec.name for spec in one.responses()}


@pytest.mark.parametrize("keys", [{"files": 10, "pool": 5}, {"files": 2, "directories": 3}])
def test_file_sets_that_contradict_themselves_are_refused(keys: dict[str, int]) -> None:
    with pytest.raises(Problem):
        work_of(FilesWork, {"operations": ["stat"], **keys})


@pytest.mark.parametrize("name", sorted(kinds()))
def test_the_reference_of_a_kind_names_every_key_word_and_response(name: str) -> None:
    text = describe(name)
    entry = kind(name)
    words = [word for vocabulary in entry.vocabulary.values() for word in vocabulary]
    for item in [
        *own_keys(entry),
        *words,
        *(spec.name for spec in entry.documented),
        "cache",
        "only",
    ]:
        assert f"\n  {item} " in text
    assert all(len(line) <= 110 for line in text.splitlines())
    size = {
        "database": "128 MiB",
        "stream": "64 MiB",
        "matrix": "64 KiB",
        "fio": "0 B",
        "mkfs": "0 B",
        "rebuild": "8 MiB",
    }
    assert f"size, {size.get(name, '4 KiB')}" in text or not any("size" in key for key in own_keys(entry))


def test_the_reference_calls_a_number_a_number_whole_or_not() -> None:
    keys = describe("random").partition("\nResponses")[0]
    rows = dict(re.findall(r"^  (\w+)  +(\S+(?: \S+)*)", keys, re.MULTILINE))
    assert {key: rows[key] for key in ("depth", "write_share", "rate")} == {
        "depth": "number, 1",
        "write_share": "number, 0.0",
        "rate": "number, 0.0",
    }


@pytest.mark.parametrize("name", sorted(kinds()))
def test_every_key_of_a_kind_says_what_it_is_for(name: str) -> None:
    assert all(key.text for key in keys_of(kind(name)).values())
    assert all(metas_of(wanted)[-1].description for wanted in kind(name).file_keys.values())
