"""What the files of this folder hold, read by parsers of a few lines each that share nothing with iotrial.

``cells()`` yields for each case its files and its cells: group, response, unit, values in order. Run it to see them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
Cell = tuple[str, str, str, tuple[float, ...]]


def lines(name: str) -> list[str]:
    return (HERE / name).read_text().splitlines()


def gathered(rows: list[tuple[str, str, str, str, float]]) -> list[Cell]:
    """Cells of rows (group, response, unit, condition, value)."""
    found: dict[tuple[str, ...], list[float]] = {}
    for *key, value in rows:
        found.setdefault(tuple(map(str, key)), []).append(float(value))
    return [(group, response, unit, tuple(values)) for (group, response, unit, _), values in found.items()]


# fio


def documents(name: str) -> list[dict]:
    """All JSON objects of a file that start in the first column."""
    parts = re.split(r"(?m)^(?=\{)", (HERE / name).read_text())
    return [json.loads(part[: part.rindex("\n}") + 2]) for part in parts if part.startswith("{")]


def fio(files: dict[str, str], *, old: bool = False, last: bool = False) -> list[Cell]:
    """Jobs by name and file; clones (one name, one groupid) by fio's rules for a reported group."""
    rows = []
    for name, group in files.items():
        for document in documents(name)[-1:] if last else documents(name):
            jobs: dict[tuple, list[dict]] = {}
            for job in document.get("jobs") or document["client_stats"]:
                jobs.setdefault((job["jobname"], job["groupid"]), []).append(job)
            for (jobname, _), clones in jobs.items():
                if clones[0]["jobname"] != "All clients":
                    rows += [(group, *one[:2], jobname, one[2]) for one in job_values(clones, old)]
    return gathered(rows)


def job_values(clones: list[dict], old: bool) -> Iterator[tuple[str, str, float]]:
    unit, suffix = ("us", "") if old else ("ns", "_ns")
    for way in ("read", "write", "trim"):
        parts = [clone[way] for clone in clones]
        ios = [part["total_ios"] for part in parts]
        if not sum(ios):
            continue
        if len(parts) == 1:
            yield f"{way}_bw", "KiB/s", parts[0]["bw"]
            yield f"{way}_iops", "1/s", parts[0]["iops"]
        else:
            seconds = max(part["runtime"] for part in parts) / 1000
            yield f"{way}_bw", "KiB/s", sum(part["io_bytes"] for part in parts) / 1024 / seconds
            yield f"{way}_iops", "1/s", sum(ios) / seconds
        for kind in ("clat", "lat"):
            timed = [part[kind + suffix] for part in parts]
            if not any(one["max"] for one in timed):
                continue
            mean = sum(one["mean"] * n for one, n in zip(timed, ios, strict=True)) / sum(ios)
            yield f"{way}_{kind}_mean", unit, mean
            for short, value in percentiles(timed):
                yield f"{way}_{kind}_p{short}", unit, value
    sync = [clone["sync"]["lat_ns"] for clone in clones if clone.get("sync", {}).get("lat_ns", {}).get("max")]
    if sync:
        yield "sync_mean", unit, sync[0]["mean"]
        for short, value in percentiles(sync):
            yield f"sync_p{short}", unit, value
    for cpu in ("usr_cpu", "sys_cpu"):
        yield cpu, "%", sum(clone[cpu] for clone in clones) / len(clones)


def percentiles(timed: list[dict]) -> Iterator[tuple[str, float]]:
    known = timed[0].get("percentile", {})
    own = "99.990000" not in known
    wanted = [key for key in known if own or key in ("50.000000", "99.000000", "99.900000")]
    every = sorted(float(at) for one in timed for at, n in one.get("bins", {}).items() for _ in range(n))
    for key in wanted:
        short = key.rstrip("0").rstrip(".")
        yield short, known[key] if len(timed) == 1 else every[math.ceil(float(key) / 100 * len(every)) - 1]


# other programs


def iozone(name: str, tests: str, unit: str = "KiB/s") -> list[Cell]:
    """The table below "reclen": two sizes, then a number for each test that was run; zeros are none.

    Numbers of eight digits may touch the one before them.
    """
    group = name.removesuffix(".txt")
    rows, inside, start = [], False, 0
    for line in lines(name):
        if "reclen" in line:
            inside, start = True, line.index("reclen") + len("reclen")
        elif inside and line.strip():
            numbers = line[start:].split()
            while any(len(number) > 8 for number in numbers):
                at = max(at for at, number in enumerate(numbers) if len(number) > 8)
                numbers[at : at + 1] = [numbers[at][:-8], numbers[at][-8:]]
            sizes = ",".join(line[:start].split())
            for test, number in zip(tests.split(), numbers, strict=True):
                if float(number):
                    rows.append((group, test, unit, sizes, float(number)))
        else:
            inside = False
    return gathered(rows)


ALL_TESTS = (
    "write rewrite read reread random_read random_write backward_read record_rewrite stride_read "
    "fwrite frewrite fread freread"
)


def bonnie(files: str, field: dict[str, int], unit: str = "KiB/s") -> list[Cell]:
    """Fields of comma-separated lines by number; plus signs are none."""
    rows = []
    for line in lines(files):
        cells = line.split(",")
        for test, at in field.items() if len(cells) > 20 else ():
            text = cells[at]
            if text and "+" not in text:
                own = "1/s" if test == "seeks" or "_" in test.replace("_block", "") else unit
                if match := re.fullmatch("([0-9]+)(us|ms)", text):
                    text, own = str(int(match[1]) * (1000 if match[2] == "ms" else 1)), "us"
                rows.append(("vm", test, own, "", float(text)))
    return gathered(rows)


IO = ("putc", "put_block", "rewrite", "getc", "get_block", "seeks")
FILES = ("seq_create", "seq_stat", "seq_del", "ran_create", "ran_stat", "ran_del")


def bonnie_fields(first: int, files: int, latencies: int | None) -> dict[str, int]:
    found = {test: first + 2 * at for at, test in enumerate(IO)}
    found |= {test: files + 2 * at for at, test in enumerate(FILES)}
    if latencies is not None:
        found |= {f"{test}_latency": latencies + at for at, test in enumerate(IO + FILES)}
    return found


def bonnie_text(name: str, tests: tuple[tuple[str, ...], ...]) -> list[Cell]:
    """Rows of the text table: rates and CPU in turn, then a line of latencies; one tuple of tests for each row."""
    rows, tables = [], iter(tests)
    row: tuple[str, ...] = ()
    for line in lines(name):
        words = line.split()
        if words[:1] == ["Latency"]:
            for test, word in zip(row, words[1:], strict=True):
                number, unit = re.fullmatch("([0-9]+)(us|ms)", word).groups()
                rows.append(
                    ("vm", f"{test}_latency", "us", "", float(number) * (1000 if unit == "ms" else 1))
                )
        elif "%CP" not in line and len(words) > 6 and "--" not in line:
            row = next(tables)
            for test, word in zip(row, words[-2 * len(row) :: 2], strict=True):
                if "+" not in word:
                    factor = {"m": 1024, "g": 1024**2}.get(word[-1], 1)
                    unit = "1/s" if test in FILES or test == "seeks" else "KiB/s"
                    rows.append(("vm", test, unit, "", float(word.rstrip("kmg")) * factor))
    return gathered(rows)


def strace(name: str, *, columns: tuple[int, int, int, int] = (1, 3, 4, 5)) -> list[Cell]:
    """The words of each row; without errors there is one word less. ``columns``: seconds, calls, errors, name."""
    group, rows = name.removesuffix(".txt"), []
    text = (HERE / name).read_text()
    for line in text[text.index("\n---") :].split("\n")[2:]:
        words = line.split()
        if not words or set(line) <= set("- "):
            continue
        seconds, calls, errors, syscall = columns
        if len(words) == max(columns):
            shift = [at - (at > errors) for at in (seconds, calls, syscall)]
            values = {"seconds": words[shift[0]], "calls": words[shift[1]]}
            call = words[shift[2]]
        else:
            values = {"seconds": words[seconds], "calls": words[calls], "errors": words[errors]}
            call = words[syscall]
        for response, value in values.items():
            rows.append((group, response, "s" if response == "seconds" else "1", call, float(value)))
    return gathered(rows)


def found(name: str, *patterns: tuple[str, str, str]) -> list[Cell]:
    """Each pattern (response, unit, expression): its last group is the number, those before it the condition."""
    group, rows = re.sub(r"\.\w+$", "", name), []
    for response, unit, pattern in patterns:
        for match in re.finditer(f"(?m){pattern}", (HERE / name).read_text()):
            *condition, number = match.groups()
            rows.append((group, response, unit, str(condition), float(number)))
    return gathered(rows)


TIMES = tuple((word, "s", rf"^{word}\t0m([0-9.]+)s$") for word in ("real", "user", "sys"))
DD = ("time", "s", "^([0-9]+) bytes.* copied, ([0-9.e-]+) s")
SYSBENCH = (
    ("latency_average", "ms", "avg: +([0-9.]+)"),
    ("95th percentile", "ms", "95th percentile: +([0-9.]+)"),
)
FILEIO = (
    *((word, "1/s", rf"{word}/s: +([0-9.]+)") for word in ("reads", "writes", "fsyncs")),
    *((word, "MiB/s", rf"{word}, MiB/s: +([0-9.]+)") for word in ("read", "written")),
    *SYSBENCH,
)
PGBENCH = (("latency_average", "ms", "latency average = ([0-9.]+)"), ("tps", "1/s", r"^tps = ([0-9.]+)"))
GO = r"^(Benchmark\S+)\s.*\s([0-9.]+) {}\b"
DB = "^([a-z]+) +: .*?([0-9.]+) {}"


def hyperfine(name: str, only: str | None = None) -> list[Cell]:
    results = json.loads((HERE / name).read_text())["results"]
    return [
        (one["command"], "time", "s", tuple(one["times"]))
        for one in results
        if only in (None, one["command"])
    ]


def table(
    name: str,
    values: dict[int, tuple[str, str]],
    *,
    group: int | None = None,
    conditions: tuple[int, ...] = (),
    split: str = ",",
    rows: slice = slice(1, None),
    groups: dict[int, str] | None = None,
    encoding: str = "utf-8",
) -> list[Cell]:
    """Cells by column number; every number is written as Python writes it, after commas of a German table."""
    found = []
    text = (HERE / name).read_text(encoding=encoding)
    for column, (response, unit) in values.items():
        for line in text.splitlines()[rows]:
            cells = [cell.strip().strip('"') for cell in line.split(split)]
            number = cells[column].partition(" ±")[0]
            if split == ";" and "," in number:
                number = number.replace(".", "").replace(",", ".")
            scale = {"k": 1000.0}.get(number[-1:], 1.0)
            if match := re.fullmatch(r"([0-9.]+)k?", number):
                own = (groups or {}).get(column) or (cells[group] if group is not None else "all")
                found.append(
                    (own, response, unit, str([cells[at] for at in conditions]), float(match[1]) * scale)
                )
    return gathered(found)


def cases() -> Iterator[tuple[tuple[str, ...], list[Cell]]]:
    def alone(name: str, read: list[Cell]) -> tuple[tuple[str, ...], list[Cell]]:
        return (name,), read

    for version in ("3.33", "3.42"):
        kinds = ["read", "clones", "group", "mixed", "stonewall", "gtod", "sync", "client"]
        kinds += ["appended", "trim"] if version == "3.33" else []
        for kind in kinds:
            name = f"fio-{version}-{kind}"
            yield alone(f"{name}.json", fio({f"{name}.json": name}))
        several = {
            f"fio-{version}-{engine}-{at}.json": f"fio-{version}-{engine}"
            for engine in ("mmap", "psync")
            for at in ((1, 2, 3) if version == "3.33" else (1, 2))
        }
        yield tuple(several), fio(several)
    yield alone("fio-3.33-interim.json", fio({"fio-3.33-interim.json": "fio-3.33-interim"}, last=True))
    yield alone("own-fio-2.json", fio({"own-fio-2.json": "own-fio-2"}, old=True))

    part = "write rewrite random_read random_write"
    yield alone("iozone-3.414-part.txt", iozone("iozone-3.414-part.txt", part))
    for name in ("iozone-3.414-auto.txt", "iozone-3.487-auto.txt"):
        yield alone(name, iozone(name, ALL_TESTS))
    for name in ("iozone-3.487-part.txt", "iozone-3.487-cpu.txt"):
        yield alone(name, iozone(name, "write rewrite read reread"))
    yield alone("iozone-3.487-ops.txt", iozone("iozone-3.487-ops.txt", part, "1/s"))
    yield alone("iozone-3.487-usec.txt", iozone("iozone-3.487-usec.txt", "write rewrite read reread", "us"))
    children = r"Children see throughput for +2 ({}) +\t+= +([0-9.]+)"
    yield alone(
        "iozone-3.487-threads.txt",
        found(
            "iozone-3.487-threads.txt",
            *(
                (word.replace(" ", "_"), "KiB/s", children.format(word))
                for word in ("initial writers", "rewriters", "readers", "re-readers")
            ),
        ),
    )
    yield alone("bonnie.csv", bonnie("bonnie.csv", bonnie_fields(9, 26, 38)))
    # below its table bonnie++ prints the same as a line; where they differ, the line counts
    yield alone("bonnie.txt", bonnie("bonnie.txt", bonnie_fields(9, 26, 38)))
    yield alone("own-bonnie-1.03.csv", bonnie("own-bonnie-1.03.csv", bonnie_fields(2, 15, None)))
    yield alone("bonnie-text.txt", bonnie_text("bonnie-text.txt", (IO, FILES)))
    fast = (("put_block", "rewrite", "get_block", "seeks"),)
    yield alone("bonnie-fast.txt", bonnie_text("bonnie-fast.txt", fast))
    for name in ("strace-c.txt", "strace-cwf.txt", "strace-both.txt"):
        yield alone(name, strace(name))
    yield alone("strace-U.txt", strace("strace-U.txt", columns=(2, 1, 3, 0)))
    yield alone("dd.txt", found("dd.txt", DD))
    yield alone("dd-time.txt", found("dd-time.txt", DD, *TIMES))
    yield alone("time.txt", found("time.txt", *TIMES))
    posix = tuple((word, "s", rf"^{word} ([0-9.]+)$") for word in ("real", "user", "sys"))
    yield alone("time-p.txt", found("time-p.txt", *posix))
    yield alone("sysbench-rndrw.txt", found("sysbench-rndrw.txt", *FILEIO))
    yield alone("sysbench-seqrd.txt", found("sysbench-seqrd.txt", *FILEIO))
    events = ("events", "1/s", "events per second: +([0-9.]+)")
    yield alone("sysbench-cpu.txt", found("sysbench-cpu.txt", events, *SYSBENCH))
    moved = ("transferred", "MiB/s", r"transferred \(([0-9.]+) MiB/sec\)")
    done = ("operations", "1/s", r"Total operations: .*\(([0-9.]+) per second\)")
    yield alone("sysbench-memory.txt", found("sysbench-memory.txt", done, moved, *SYSBENCH))
    for name in ("pgbench-tpcb.txt", "pgbench-select.txt", "pgbench-r.txt"):
        yield alone(name, found(name, *PGBENCH))
    go = [("time", "ns", "ns/op"), ("rate", "MB/s", "MB/s"), ("pages/op", "pages/op", "pages/op")]
    yield alone("go.txt", found("go.txt", *((name, unit, GO.format(word)) for name, unit, word in go)))
    db = [("time", "us", "micros/op"), ("rate", "MB/s", "MB/s")]
    yield alone(
        "own-db_bench.txt",
        found("own-db_bench.txt", *((name, unit, DB.format(word)) for name, unit, word in db)),
    )
    yield alone(
        "own-hdparm.txt", found("own-hdparm.txt", ("rate", "MB/s", r"Timing (.*):.* = ([0-9.]+) MB/sec"))
    )
    disk = r"^  ([SR].*\)):\s+([0-9.]+) MB/s"
    reads, writes = (HERE / "own-crystaldiskmark.txt").read_text().split("[Write]")
    yield alone(
        "own-crystaldiskmark.txt",
        [
            ("own-crystaldiskmark", "rate", "MB/s", (float(match[2]),))
            for text in (reads, writes)
            for match in re.finditer(f"(?m){disk}", text)
        ],
    )
    ycsb = [("RunTime", "ms"), ("Time", "ms"), ("throughput", "1/s")]
    ycsb += [(word, "us") for word in ("AverageLatency", "MinLatency", "95thPercentileLatency")]
    yield alone(
        "own-ycsb.txt",
        found(
            "own-ycsb.txt",
            *(
                (word, unit, rf"(?i)^\[(\w+)\], {word}\(\S+\), ([0-9.]+)".replace("(?m)", ""))
                for word, unit in ycsb
            ),
        ),
    )
    for name in ("hyperfine-two.json", "hyperfine-scan.json", "hyperfine-1.20-two.json"):
        yield alone(name, hyperfine(name))
    yield alone("hyperfine-fails.json", hyperfine("hyperfine-fails.json", only="works"))
    summary = {1: ("mean", "s"), 3: ("median", "s"), 4: ("user", "s"), 5: ("system", "s")}
    for name in ("hyperfine-two.csv", "hyperfine-scan.csv", "hyperfine-1.20-two.csv"):
        yield alone(name, table(name, summary, group=0))
    for name, marks in (
        ("hyperfine-two.md", "|"),
        ("hyperfine-1.20-two.md", "|"),
        ("hyperfine-1.20.org", "|"),
    ):
        read = table(name, {2: ("Mean", "ms")}, group=1, split=marks, rows=slice(2, None))
        yield alone(name, [(group.strip("`="), *rest) for group, *rest in read])
    for name, group, unit in (
        ("own-criterion.txt", "own-criterion", "µs"),
        ("criterion-0.5.txt", "criterion-0.5", "ns"),
    ):
        middle = re.findall(rf"time: +\[\S+ \S+ (\S+) {unit} ", (HERE / name).read_text())
        yield alone(name, [(group, "time", unit, (float(value),)) for value in middle])
    suites = json.loads((HERE / "pytest-benchmark.json").read_text())["benchmarks"]
    yield alone(
        "pytest-benchmark.json",
        [("pytest-benchmark", "time", "s", tuple(one["stats"]["data"])) for one in suites],
    )
    google = json.loads((HERE / "own-google-benchmark.json").read_text())["benchmarks"]
    single = [one for one in google if one["run_type"] == "iteration"]
    yield alone(
        "own-google-benchmark.json",
        gathered(
            [("own-google-benchmark", "real_time", "ns", one["run_name"], one["real_time"]) for one in single]
        ),
    )
    raw = re.findall(
        r"<Identifier>(\w+)</Identifier>.*<RawString>(.*)</RawString>",
        (HERE / "own-phoronix.xml").read_text(),
    )
    yield alone(
        "own-phoronix.xml",
        [
            (group, *("rate MB/s" if at < 2 else "time Seconds").split(), tuple(map(float, text.split(":"))))
            for at, (group, text) in enumerate(raw)
        ],
    )

    yield alone(
        "own-german.csv",
        table("own-german.csv", {2: ("Zeit", "s"), 3: ("Rate", "MB/s")}, group=0, split=";"),
    )
    wide = {1: "none", 2: "mq-deadline", 3: "bfq"}
    yield alone(
        "own-wide.tsv", table("own-wide.tsv", dict.fromkeys(wide, ("time", "ms")), groups=wide, split="\t")
    )
    yield alone(
        "own-markdown.md",
        table(
            "own-markdown.md", {3: ("time", "s")}, group=1, conditions=(2,), split="|", rows=slice(4, None)
        ),
    )
    ranks = {1: ("p50", "us"), 2: ("p95", "us"), 3: ("p99", "us")}
    yield alone("own-percentiles.csv", table("own-percentiles.csv", ranks, group=0))
    modes = {1: "sync", 2: "async"}
    yield alone(
        "own-labels.csv",
        table("own-labels.csv", dict.fromkeys(modes, ("rate", "MB/s")), groups=modes, conditions=(0,)),
    )
    yield alone("own-thousands.csv", table("own-thousands.csv", {1: ("rate", "1/s")}, group=0))
    systems = {1: "ext4", 2: "xfs"}
    yield alone(
        "own-statistic-rows.csv",
        table(
            "own-statistic-rows.csv", dict.fromkeys(systems, ("time", "s")), groups=systems, rows=slice(1, 4)
        ),
    )
    yield alone(
        "own-utf16.csv", table("own-utf16.csv", {1: ("time", "s")}, group=0, split=";", encoding="utf-16")
    )
    yield alone("own-missing.csv", table("own-missing.csv", {1: ("time", "s")}, group=0))
    yield alone(
        "own-units.csv", [("ext4", "lat", "µs", (850.0, 1100.0)), ("xfs", "lat", "µs", (900.0, 1250.0))]
    )
    yield alone(
        "own-repeats.csv",
        [("0444", "value", "", (1.5, 1.625, 1.75)), ("0777", "value", "", (1.25, 1.375, 1.5))],
    )
    workers = {
        1: ("time ms [first]", ""), 2: ("time ms [last]", ""), 3: ("IOPS [first]", ""), 4: ("IOPS [last]", ""),
        5: ("MiB/s [first]", ""), 6: ("MiB/s [last]", ""), 8: ("IO lat us [avg]", ""),
    }  # fmt: skip
    yield alone("own-elbencho.csv", table("own-elbencho.csv", workers, conditions=(0,)))
    redis = {1: ("rate", "1/s"), 2: ("avg_latency", "ms")}
    redis |= {at: (f"p{rank}_latency", "ms") for at, rank in ((4, 50), (5, 95), (6, 99))}
    yield alone("own-redis.csv", table("own-redis.csv", redis, conditions=(0,)))


if __name__ == "__main__":
    for files, read in cases():
        print(*files)
        for cell in read:
            print("   ", *cell)
