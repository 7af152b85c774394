"""The times of each benchmark in what a benchmark suite has printed or written, read by the importers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from iotrial.audits.importers import criterion, detect, hyperfine, printed, suites
from iotrial.audits.importers.contract import ReadOptions, Source
from iotrial.audits.model import TIME_UNITS
from iotrial.errors import RequestError

#: what can be read, for messages
SUITES = "criterion, google-benchmark (JSON), pytest-benchmark (JSON), go test -bench, hyperfine (JSON)"
_FORMATS = (criterion.FORMAT, hyperfine.FORMAT, printed.FORMAT, suites.FORMAT)
#: google-benchmark has this and processor time; the others say "time"
_TIMES = ("time", "real_time")


@lru_cache(maxsize=2)
def benchmark_times(text: str) -> Mapping[str, tuple[float, ...]]:
    """Return the times in seconds by benchmark, repeats in their order.

    The last two texts are kept, since each of its benchmarks reads one. Rates and counts of a benchmark are left out.
    Raises RequestError if the text is of no suite, or has no times.
    """
    source = Source("the output", text)
    form = detect(source)
    if form not in _FORMATS:
        raise RequestError(
            f"the output is {form.title}, not that of a benchmark suite", hint=f"expected {SUITES}"
        )
    found: dict[str, list[float]] = {}
    for one in form.read(source, ReadOptions()).observations:
        if one.response in _TIMES and one.unit in TIME_UNITS:
            name = " ".join(value for _, value in one.condition) or one.group
            found.setdefault(name, []).append(one.value * TIME_UNITS[one.unit])
    if not found:
        raise RequestError("the output has no time of a benchmark", hint=f"expected {SUITES}")
    return {name: tuple(times) for name, times in found.items()}
