"""Workload kind ``matrix``: iozone's thirteen tests on one file, done and timed inside the probe.

One file size and one record size are a cell; a study makes many cells of them by condition factors on the knobs
``matrix.file_size`` and ``matrix.record_size``. Cells whose record is larger than their file are none.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from iotrial.errors import RequestError
from iotrial.study.kinds.contract import (
    CPU_RESPONSES,
    KeyProblem,
    ResponseSpec,
    WorkloadKind,
    count_response,
    time_response,
)
from iotrial.study.model import MatrixWork, Work
from iotrial.study.wire import Line, Size, Table
from iotrial.units import UnitError, format_bytes, parse_size

FILE_SIZE, RECORD_SIZE = "matrix.file_size", "matrix.record_size"

TESTS = {
    "write": "write(2) of every record of a new file",
    "rewrite": "write(2) of every record of the file that is there",
    "read": "read(2) of every record, in order",
    "reread": "the same once more",
    "random-read": "read(2) of every record once, in random order",
    "random-write": "write(2) of every record once, in random order",
    "backward-read": "read(2) of every record, from the last to the first",
    "record-rewrite": "write(2) of the first record, as often as there are records",
    "stride-read": "read(2) of every record once, each `stride` records after the one before",
    "fwrite": "fwrite(3) of every record of a new file, its buffer one record",
    "frewrite": "fwrite(3) of every record of the file that is there",
    "fread": "fread(3) of every record",
    "freread": "the same once more",
}
SMALLEST_RECORD, LARGEST_RECORD = 8, 1 << 30
LARGEST_FILE = 1 << 40
_MOST_RECORDS = 1 << 26
_BLOCK = 512


class MatrixKeys(Table):
    """Keys of ``kind = "matrix"``."""

    tests: list[Line] = Field(
        [], max_length=13, description="which tests, all where left out; always done in iozone's order"
    )
    file_size: Size = Field(
        4 << 20,
        ge=SMALLEST_RECORD,
        le=LARGEST_FILE,
        description="where no factor on matrix.file_size varies it",
    )
    record_size: Size = Field(
        65536,
        ge=SMALLEST_RECORD,
        le=LARGEST_RECORD,
        description="where no factor on matrix.record_size varies it",
    )
    direct: bool = Field(False, description="O_DIRECT in the first nine tests (iozone -I)")
    sync: bool = Field(False, description="O_SYNC in those that write (iozone -o)")
    fsync: bool = Field(
        False, description="fflush and fsync within the timed part of what writes (iozone -e)"
    )
    close: bool = Field(False, description="close within the timed part (iozone -c)")
    cold: bool = Field(
        False, description="before each test that reads, but a reread, the file leaves the page cache"
    )
    content: Literal["random", "text", "zeros"] = Field(
        "random", description="incompressible bytes, lines of hexadecimal digits, or zeros"
    )
    stride: int = Field(
        17, ge=1, le=1 << 20, description="records that a strided read advances by (iozone -j)"
    )
    replicates: int = Field(
        1,
        ge=1,
        le=100_000,
        description="repeats of all tests inside one run; their total is the run's response",
    )


def build(keys: MatrixKeys) -> MatrixWork:
    """The work of these keys; KeyProblem where they cannot work."""
    for index, test in enumerate(keys.tests):
        if test not in TESTS:
            near = difflib.get_close_matches(test, TESTS, n=1, cutoff=0.4)
            hint = f'did you mean "{near[0]}"?' if near else f"there are: {', '.join(TESTS)}"
            raise KeyProblem(f'no test is called "{test}"', "tests", index, hint=hint)
        if test in keys.tests[:index]:
            raise KeyProblem(f'"{test}" stands there twice', "tests", index)
    problem = _problem(keys.file_size, keys.record_size, direct=keys.direct)
    if problem is not None:
        raise KeyProblem(problem, "record_size")
    if keys.record_size > keys.file_size:
        raise KeyProblem(
            f"a record of {format_bytes(keys.record_size)} in a file of {format_bytes(keys.file_size)}",
            "record_size",
        )
    return MatrixWork(
        tests=tuple(test for test in TESTS if test in keys.tests or not keys.tests),
        file_size_bytes=keys.file_size,
        record_size_bytes=keys.record_size,
        direct=keys.direct,
        sync=keys.sync,
        fsync=keys.fsync,
        close=keys.close,
        cold=keys.cold,
        content=keys.content,
        stride=keys.stride,
        replicates=keys.replicates,
    )


def cell_size(work: MatrixWork, settings: Mapping[str, str]) -> tuple[int, int]:
    """Bytes of file and of record, where ``settings`` (values by knob) may vary them."""
    try:
        return (
            parse_size(settings[FILE_SIZE]) if FILE_SIZE in settings else work.file_size_bytes,
            parse_size(settings[RECORD_SIZE]) if RECORD_SIZE in settings else work.record_size_bytes,
        )
    except UnitError as error:
        raise RequestError(f"a size of a matrix: {error}", hint=error.hint) from error


def possible(work: Work, settings: Mapping[str, str]) -> bool:
    """Whether there is such a cell: its record fits into its file. RequestError where it fits and cannot work."""
    assert isinstance(work, MatrixWork)
    file, record = cell_size(work, settings)
    if record > file:
        return False
    problem = _problem(file, record, direct=work.direct)
    if problem is not None:
        raise RequestError(f"a cell of a matrix: {problem}")
    return True


def _problem(file: int, record: int, *, direct: bool) -> str | None:
    if direct and record % _BLOCK:
        return f"with direct a record is a multiple of {_BLOCK} bytes, found {record:,}"
    if record <= file and file % record:
        return f"a file of {file:,} bytes is no multiple of its record of {record:,}"
    if file // record > _MOST_RECORDS:
        return f"a file of {file:,} bytes has more than {_MOST_RECORDS:,} records of {record:,}"
    return None


def response_of(test: str) -> str:
    """The response that holds a test's time: ``random_read_time``."""
    return f"{test.replace('-', '_')}_time"


def responses(work: Work) -> tuple[ResponseSpec, ...]:
    """What one run of this work measures."""
    assert isinstance(work, MatrixWork)
    return (_WALL, *(_time_of(test) for test in work.tests), *CPU_RESPONSES, *_DEVICE)


def _time_of(test: str) -> ResponseSpec:
    return time_response(response_of(test), f"time of the test {test}")


_WALL = time_response("wall", "time of all tests together")
_DEVICE = (
    count_response(
        "device_read_bytes", "bytes", "read from the lab's devices from the first test to the end of the last"
    ),
    count_response(
        "device_write_bytes", "bytes", "written to them meanwhile, what is synced between tests included"
    ),
)

KIND = WorkloadKind(
    name="matrix",
    work=MatrixWork,
    summary="The thirteen tests of iozone on one file: every combination of a file size and a record size is a cell.",
    keys=MatrixKeys,
    build=build,
    responses=responses,
    documented=(
        _WALL,
        time_response("TEST_time", 'time of one test, "-" written as "_" (random_read_time)'),
        *CPU_RESPONSES,
        *_DEVICE,
    ),
    vocabulary={"tests": TESTS},
    notes="Factors of role condition on matrix.file_size and matrix.record_size make the matrix; cells whose record is "
    "larger than the file are left out. The known slow-down of the positive control is put into every test, and judged in "
    "each that is primary.",
    possible=possible,
    stretches_each=True,
)
