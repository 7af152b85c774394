"""Workload kind ``matrix``: iozone's thirteen tests on one file, done and timed inside the probe.

A cell is one file size and one record size; condition factors on the knobs ``matrix.file_size`` and
``matrix.record_size`` make many cells. Cells with a record larger than the file are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from msgspec import Meta

from iotrial.errors import RequestError, twice, unknown
from iotrial.knobs.work import FILE_SIZE, LARGEST_FILE, LARGEST_RECORD, RECORD_SIZE, SMALLEST_RECORD
from iotrial.study.schema import Line, Problem, Size
from iotrial.study.work import (
    CPU_RESPONSES,
    JobContext,
    Measured,
    ResponseSpec,
    Work,
    count_response,
    time_response,
)
from iotrial.units import UnitError, format_bytes, parse_size

TESTS = {
    "write": "write(2) of every record of a new file",
    "rewrite": "write(2) of every record of the existing file",
    "read": "read(2) of every record, in order",
    "reread": "the same again",
    "random-read": "read(2) of every record once, in random order",
    "random-write": "write(2) of every record once, in random order",
    "backward-read": "read(2) of every record, from the last to the first",
    "record-rewrite": "write(2) of the first record, as often as there are records",
    "stride-read": "read(2) of every record once, `stride` records apart",
    "fwrite": "fwrite(3) of every record of a new file, with a buffer of one record",
    "frewrite": "fwrite(3) of every record of the existing file",
    "fread": "fread(3) of every record",
    "freread": "the same again",
}
_MOST_RECORDS = 1 << 26
_BLOCK = 512
_OPTIONS = ("direct", "sync", "fsync", "close", "cold")

_WALL = time_response("wall", "time of all tests together")
_DEVICE = (
    count_response(
        "device_read_bytes", "bytes", "read from the lab's devices from the first test to the end of the last"
    ),
    count_response(
        "device_write_bytes", "bytes", "written to them during that time, including syncs between tests"
    ),
)


class MatrixWork(Work, frozen=True, kw_only=True):
    """iozone's tests on a file of the job's own, in iozone's order.

    The slowdown is injected into every test, so each has its own control. The sizes apply if no condition
    varies them.
    """

    kind = "matrix"
    about = "The thirteen tests of iozone on one file: every combination of a file size and a record size is a cell."
    vocabulary = {"tests": TESTS}
    documented = (
        _WALL,
        time_response("TEST_time", 'time of one test, "-" written as "_" (random_read_time)'),
        *CPU_RESPONSES,
        *_DEVICE,
    )
    verb = "matrix"
    own_file = True

    tests: Annotated[
        tuple[Line, ...],
        Meta(max_length=13, description="tests to run (default: all), always in iozone's order"),
    ] = ()
    file_size_bytes: Annotated[
        Size,
        Meta(
            ge=SMALLEST_RECORD,
            le=LARGEST_FILE,
            description="file size, unless matrix.file_size varies it",
        ),
    ] = 4 << 20
    record_size_bytes: Annotated[
        Size,
        Meta(
            ge=SMALLEST_RECORD,
            le=LARGEST_RECORD,
            description="record size, unless matrix.record_size varies it",
        ),
    ] = 65536
    direct: Annotated[bool, Meta(description="O_DIRECT in the first nine tests (iozone -I)")] = False
    sync: Annotated[bool, Meta(description="O_SYNC in the tests that write (iozone -o)")] = False
    fsync: Annotated[
        bool, Meta(description="time includes fflush and fsync of writing tests (iozone -e)")
    ] = False
    close: Annotated[bool, Meta(description="time includes close (iozone -c)")] = False
    cold: Annotated[
        bool, Meta(description="drop the file from the page cache before reading tests except reread")
    ] = False
    content: Annotated[
        Literal["random", "text", "zeros"],
        Meta(description="incompressible bytes, lines of hexadecimal digits, or zeros"),
    ] = "random"
    stride: Annotated[
        int, Meta(ge=1, le=1 << 20, description="step of a strided read, in records (iozone -j)")
    ] = 17
    replicates: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="repeats of all tests inside one run; their total is the run's response",
        ),
    ] = 1

    @classmethod
    def made(cls, values: dict[str, Any]) -> Self:
        """Put the tests in iozone's order."""
        named = values.get("tests") or tuple(TESTS)
        for index, test in enumerate(named):
            if test not in TESTS:
                message, hint = unknown("test", test, TESTS)
                raise Problem(message, "tests", index, hint=hint)
            if test in named[:index]:
                raise Problem(twice("test", test), "tests", index)
        return cls(**{**values, "tests": tuple(test for test in TESTS if test in named)})

    def check(self) -> None:
        if not set(self.tests) <= set(TESTS) or not self.tests:
            raise Problem("its tests are not those of iozone", "tests")
        problem = _problem(self.file_size_bytes, self.record_size_bytes, direct=self.direct)
        if problem is not None:
            raise Problem(problem, "record_size")
        if self.record_size_bytes > self.file_size_bytes:
            raise Problem(
                f"a record of {format_bytes(self.record_size_bytes)} in a file of {format_bytes(self.file_size_bytes)}",
                "record_size",
            )

    def stretches_each(self) -> bool:
        return True

    def responses(self) -> tuple[ResponseSpec, ...]:
        times = (time_response(response_of(test), f"time of the test {test}") for test in self.tests)
        return (_WALL, *times, *CPU_RESPONSES, *_DEVICE)

    def cell_size(self, settings: Mapping[str, str]) -> tuple[int, int]:
        """Return the file and record size in bytes, as varied by ``settings`` (values by knob)."""
        try:
            return (
                parse_size(settings[FILE_SIZE]) if FILE_SIZE in settings else self.file_size_bytes,
                parse_size(settings[RECORD_SIZE]) if RECORD_SIZE in settings else self.record_size_bytes,
            )
        except UnitError as error:
            raise RequestError(f"a size of a matrix: {error}", hint=error.hint) from error

    def possible(self, settings: Mapping[str, str]) -> bool:
        """Return whether the record fits into the file. Raises RequestError if it does but cannot work."""
        file, record = self.cell_size(settings)
        if record > file:
            return False
        problem = _problem(file, record, direct=self.direct)
        if problem is not None:
            raise RequestError(f"a cell of a matrix: {problem}")
        return True

    def described(self) -> str:
        sizes = f"{format_bytes(self.file_size_bytes)} by {format_bytes(self.record_size_bytes)}"
        options = "".join(f", {option}" for option in _OPTIONS if getattr(self, option))
        return f"matrix {', '.join(self.tests)}{options} ({sizes} unless a condition says otherwise)"

    def probe_job(self, context: JobContext) -> dict[str, object]:
        return {
            "tests": list(self.tests),
            "file_size": context.sizes.get("file_size", self.file_size_bytes),
            "record_size": context.sizes.get("record_size", self.record_size_bytes),
            **{option: getattr(self, option) for option in _OPTIONS},
            "content": self.content,
            "stride": self.stride,
        }

    def measured(self, answer: Mapping[str, Any], context: JobContext) -> Measured:
        return Measured(
            {response_of(name): found["wall_ns"] / 1e9 for name, found in answer["tests"].items()}
        )

    def reads_bytes(self, size: int, files: int) -> int:
        return 0  # it reads only what it has written; the job itself makes reads cold and verifies it

    def own_bytes(self, settings: Mapping[str, str]) -> int:
        return self.cell_size(settings)[0]

    def writes(self) -> bool:
        return False  # not to the files of its set


def response_of(test: str) -> str:
    """Return the name of the response with a test's time: ``random_read_time``."""
    return f"{test.replace('-', '_')}_time"


def _problem(file: int, record: int, *, direct: bool) -> str | None:
    if direct and record % _BLOCK:
        return f"with direct a record is a multiple of {_BLOCK} bytes, found {record:,}"
    if record <= file and file % record:
        return f"a file of {file:,} bytes is not a multiple of its record of {record:,}"
    if file // record > _MOST_RECORDS:
        return f"a file of {file:,} bytes has more than {_MOST_RECORDS:,} records of {record:,}"
    return None


WORK = MatrixWork
