"""Programs that print a line per result, those that are refused by name, and tables that are not what they seem."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from iotrial.audits.audit import audit, cells_of
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, Source, source_of, with_stems
from iotrial.audits.model import Dataset
from iotrial.errors import IotrialError, RequestError
from iotrial.report.audit.sentences import findings

DATA = Path(__file__).parents[1] / "data" / "audit" / "printed"
CORPUS = DATA.parent / "corpus"


def of(text: str, *, name: str = "x.txt", **options: Any) -> Dataset:
    return read([source_of(text.encode(), name=name)], ReadOptions(**options))


def rows(data: Dataset) -> list[tuple[str, str, float, str]]:
    return [(one.group, one.response, one.value, one.unit) for one in data.observations]


@pytest.mark.parametrize(
    ("name", "pattern", "response", "unit"),
    [
        ("dd.txt", r"copied, ([0-9.]+) s", "time", "s"),
        ("time.txt", r"real\s+0m([0-9.]+)s", "real", "s"),
        ("sysbench.txt", r"read, MiB/s:\s+([0-9.]+)", "read", "MiB/s"),
        ("go.txt", r"([0-9.]+) ns/op", "time", "ns"),
        ("go.txt", r"([0-9.]+) MB/s", "rate", "MB/s"),
    ],
)
def test_every_printed_result_is_a_run_in_its_unit(name: str, pattern: str, response: str, unit: str) -> None:
    text = (DATA / name).read_text()
    expected = [float(number) for number in re.findall(pattern, text)]
    data = of(text, name=name)
    assert expected
    assert [o.value for o in data.observations if o.response == response] == expected
    assert {o.unit for o in data.observations if o.response == response} == {unit}


#: the programs' shapes, with numbers of our own
SHAPES = {
    "pgbench": (
        "transaction type: <builtin: TPC-B (sort of)>\nscaling factor: 10\nnumber of clients: 4\n"
        "number of transactions actually processed: 1234\nlatency average = 3.25 ms\n"
        "initial connection time = 9.1 ms\ntps = 1230.5 (without initial connection time)\n",
        [("x", "latency_average", 3.25, "ms"), ("x", "tps", 1230.5, "1/s")],
    ),
    "hdparm": (
        "\n/dev/sda:\n Timing cached reads:   20000 MB in  2.00 seconds = 9999.5 MB/sec\n"
        " Timing buffered disk reads: 600 MB in  3.01 seconds = 199.34 MB/sec\n",
        [("x", "rate", 9999.5, "MB/s"), ("x", "rate", 199.34, "MB/s")],
    ),
    "YCSB": (
        "[OVERALL], RunTime(ms), 1000\n[OVERALL], Throughput(ops/sec), 4321.5\n[READ], AverageLatency(us), 210.5\n",
        [("x", "RunTime", 1000.0, "ms"), ("x", "throughput", 4321.5, "1/s"), ("x", "AverageLatency", 210.5, "us")],
    ),
    "db_bench": (
        "fillseq      :       3.456 micros/op 289345 ops/sec;   32.0 MB/s\n",
        [("x", "time", 3.456, "us"), ("x", "rate", 32.0, "MB/s")],
    ),
    "CrystalDiskMark": (
        "CrystalDiskMark 8.0.4 x64\n[Read]\n  SEQ    1MiB (Q=  8, T= 1):  3567.123 MB/s [   3401.9 IOPS] <  2348.49 us>\n"
        "[Write]\n  SEQ    1MiB (Q=  8, T= 1):  2100.5 MB/s [   2003.2 IOPS] <  3990.01 us>\n",
        [("x", "rate", 3567.123, "MB/s"), ("x", "rate", 2100.5, "MB/s")],
    ),
    "time, decimal comma": ("real\t1m2,5s\nuser\t0m0,1s\nsys\t0m0,0s\n", [
        ("x", "real", 62.5, "s"), ("x", "user", 0.1, "s"), ("x", "sys", 0.0, "s"),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_programs(name: str) -> None:
    text, expected = SHAPES[name]
    assert rows(of(text)) == expected


def test_what_the_program_says_of_its_work_is_a_condition() -> None:
    both = SHAPES["CrystalDiskMark"][0]
    assert [dict(o.condition)["direction"] for o in of(both).observations] == ["Read", "Write"]
    (reads, *_) = of((DATA / "sysbench.txt").read_text()).observations
    assert dict(reads.condition) == {"Number of threads": "1", "Block size": "16KiB", "test": "random read"}


def test_files_are_runs_of_their_name() -> None:
    sources = [
        source_of(f"1000 bytes (1.0 kB) copied, {second} s, 1 kB/s\n".encode(), name=name, alone=False)
        for name, second in (("ext4-1.txt", 1.5), ("ext4-2.txt", 1.25), ("xfs-1.txt", 2))
    ]
    found = [(o.group, o.value) for o in read(sources, ReadOptions()).observations]
    assert found == [("ext4", 1.5), ("ext4", 1.25), ("xfs", 2.0)]


def test_runs_of_several_files_stay_in_the_order_of_the_files() -> None:
    timed = "real\t0m{}s\nuser\t0m0.1s\nsys\t0m0.1s\n"
    sources = [
        source_of("".join(map(timed.format, seconds)).encode(), name=name, alone=False)
        for name, seconds in (("x-1.txt", (1.5, 2.5)), ("x-2.txt", (3.5, 4.5)))
    ]
    (real,) = [cell for cell in cells_of(read(sources, ReadOptions())) if cell.response == "real"]
    assert real.values == (1.5, 2.5, 3.5, 4.5)


def test_both_programs_of_a_line_are_read() -> None:
    data = of("1000 bytes (1.0 kB) copied, 2.5e-05 s, 40 MB/s\nreal\t0m0.5s\nuser\t0m0.1s\nsys\t0m0.2s\n")
    assert rows(data) == [
        ("x", "time", 2.5e-05, "s"), ("x", "real", 0.5, "s"), ("x", "user", 0.1, "s"), ("x", "sys", 0.2, "s"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "who"),
    [
        ("normal.txt", "fio's normal output"),
        ("terse.txt", "fio's terse output"),
        ("mpstat.txt", "sysstat"),
        ("ioping.txt", "ioping"),
        ("hyperfine.txt", "hyperfine's text output"),
        ("# hostname;interval;timestamp;CPU;%user\nvm;1;2026-01-01 UTC;-1;5\n", "sadf"),
        ("1, 23, 0, 4096, 0\n2, 24, 0, 4096, 0\n", "log of fio"),
        (f"201, 0, 4096{', 0' * 1500}\n" * 2, "log of fio"),
        (" Operation      Count    AvgLat    MaxLat\n ----\n NTCreateX  1835  0.013  2.312\n", "dbench"),
        ("FSUse%        Count         Size    Files/sec     App Overhead\n  1  1000  51200  500.2  9999\n", "fs_mark"),
        ("<table><tr><th>fs</th></tr></table>\n", "web page"),
        ("  │ old.txt │     new.txt      │\n  │ sec/op  │ sec/op   vs base │\n", "benchstat"),
    ],
)  # fmt: skip
def test_what_is_no_run_is_refused_by_name_with_what_to_do(text: str, who: str) -> None:
    whole = (DATA / text).read_text() if text.endswith(".txt") else text
    with pytest.raises(RequestError, match=who) as refused:
        of(whole)
    assert refused.value.hint


# tables


def test_a_table_without_a_header_keeps_its_first_row_or_is_refused() -> None:
    text = "ext4,101.5\nxfs,120.1\n"
    with pytest.raises(RequestError, match="holds numbers") as refused:
        of(text)
    assert "--columns" in str(refused.value.hint)
    data = of(text, columns=("treatment", "value"))
    assert [(group, value) for group, _, value, _ in rows(data)] == [("ext4", 101.5), ("xfs", 120.1)]


def test_rising_levels_are_names_of_columns() -> None:
    assert {group for group, *_ in rows(of("test,1,2,4\nread,10.5,11.5,12.5\n"))} == {"1", "2", "4"}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (("treatment",), "1 roles, but the table has 2"),
        (("treatment", "nope"), "nope"),
        (("treatment", "treatment"), "expected one treatment, found 2"),
        (("treatment", "ignore"), "expected a value, found none"),
    ],
)
def test_wrong_roles_are_refused(columns: tuple[str, ...], said: str) -> None:
    with pytest.raises(IotrialError, match=said):
        of("fs,time_s\nxfs,2\n", columns=columns)


def test_the_guess_is_printed_as_the_option_that_repeats_it() -> None:
    text = "fs,size_kib,time_s,stddev\next4,4,1.5,0.1\nxfs,4,1.25,0.1\n"
    guess = of(text)
    assert guess.columns == "treatment,condition,value,ignore"
    again = of(text, columns=tuple(guess.columns.split(",")))
    assert again.observations == guess.observations


@pytest.mark.parametrize(
    ("header", "responses"),
    [
        ("fs,p50_ms,p95_ms,p99_ms", {"p50", "p95", "p99"}),
        ("fs,lat_min,lat_avg,lat_max", {"lat_avg"}),
        ("fs,mean,stddev,±", {"mean"}),
        ("fs,IOPS [first],IOPS [last],lat us [avg]", {"IOPS [first]", "IOPS [last]", "lat us [avg]"}),
    ],
)
def test_statistics_are_no_treatments(header: str, responses: set[str]) -> None:
    data = of(f"{header}\next4,1.5,2.5,3.5\nxfs,1.25,2.25,3.25\n")
    assert {(group, response) for group, response, *_ in rows(data)} == {
        (group, response) for group in ("ext4", "xfs") for response in responses
    }
    assert {o.condition for o in data.observations} == {()}


def test_percentiles_below_each_other_are_conditions() -> None:
    data = of("percentile,ext4,xfs\n50,1.0,1.1\n99,3.0,3.1\n")
    assert [(o.group, o.value, o.condition) for o in data.observations] == [
        (group, value, (("percentile", share),))
        for group, values in (("ext4", (1.0, 3.0)), ("xfs", (1.1, 3.1)))
        for share, value in zip(("50", "99"), values, strict=True)
    ]


@pytest.mark.parametrize("first", [0, 1])
def test_unnamed_numbers_of_rows_are_no_treatment(first: int) -> None:
    data = of(f",ext4,xfs\n{first},100.5,110.5\n{first + 1},101.5,111.5\n")
    assert {(o.group, o.value) for o in data.observations} == {
        ("ext4", 100.5), ("ext4", 101.5), ("xfs", 110.5), ("xfs", 111.5),
    }  # fmt: skip
    assert data.columns == "ignore,value,value"
    assert "(empty): numbers of the rows, not a measurement" in data.unread
    long = of(f",fs,time_s\n{first},ext4,1.5\n{first + 1},xfs,1.75\n")
    assert [(o.group, o.value, o.condition) for o in long.observations] == [
        ("ext4", 1.5, ()),
        ("xfs", 1.75, ()),
    ]


def test_a_mean_next_to_its_runs_is_none_of_them() -> None:
    data = of("fs,rep1,rep2,avg\next4,1.5,1.75,1.625\nxfs,2.5,2.75,2.625\n")
    assert [(o.group, o.value, o.run) for o in data.observations if o.response == "value"] == [
        ("ext4", 1.5, 0), ("xfs", 2.5, 0), ("ext4", 1.75, 1), ("xfs", 2.75, 1),
    ]  # fmt: skip
    assert len(data.observations) == 4
    assert "avg: a statistic of the runs, not a measurement" in data.unread


@pytest.mark.parametrize("second", ["fs,iops", "\nfs,iops", "\nscheduler,iops"])
def test_a_second_table_in_a_file_is_no_repeat(second: str) -> None:
    with pytest.raises(RequestError, match=r"row 3 .* begins a second table"):
        of(f"fs,time_s\next4,1.5\nxfs,2.5\n{second}\next4,100\nxfs,200\n")


def test_a_header_that_is_repeated_begins_no_second_table() -> None:
    data = of("fs,time_s\next4,1.5\n\nfs,time_s\next4,1.75\nxfs,failed\nxfs,2.5\n")
    assert [(o.group, o.value) for o in data.observations] == [("ext4", 1.5), ("ext4", 1.75), ("xfs", 2.5)]


def test_columns_named_by_a_count_are_responses() -> None:
    data = of("fs,8 jobs,16 jobs\next4,100.5,200.1\nxfs,110.2,210.5\n")
    assert rows(data) == [
        ("ext4", "8 jobs", 100.5, ""), ("xfs", "8 jobs", 110.2, ""),
        ("ext4", "16 jobs", 200.1, ""), ("xfs", "16 jobs", 210.5, ""),
    ]  # fmt: skip


def test_a_result_of_pgbench_without_its_run_is_named_and_progress_is_counted() -> None:
    head = "progress: 6.0 s, 1014.5 tps, lat 7.8 ms stddev 4.6\nscaling factor: 1\nnumber of clients: 8\n"
    run = "number of transactions actually processed: 9\n"
    figures = "latency average = 9.8 ms\ntps = {} (without initial connection time)\n"
    data = of(f"{head}{run}{figures.format(813.5)}-- sync\n{figures.format(579.25)}")
    assert [value for _, response, value, _ in rows(data) if response == "tps"] == [813.5]
    assert "tps = 579.25" in " ".join(data.unread)
    assert "x.txt: interim reports (1)" in data.unread


def test_a_run_of_sysbench_does_not_inherit_the_conditions_of_the_one_before() -> None:
    head = "sysbench 1.0.20 (using system LuaJIT 2.1)\nNumber of threads: 1\n"
    file = "Block size 16KiB\nDoing random read test\n         avg:      0.25\n         95th percentile:    0.5\n"
    report = "[ 1s ] thds: 1 eps: 1000.00 lat (ms,95%): 1.00\n"
    cpu = f"Prime numbers limit: 10000\n{report}         avg:      1.25\n         95th percentile:    1.5\n"
    data = of(head + file + head + cpu)
    assert [(o.value, dict(o.condition)) for o in data.observations if o.response == "latency_average"] == [
        (0.25, {"Number of threads": "1", "Block size": "16KiB", "test": "random read"}),
        (1.25, {"Number of threads": "1", "Prime numbers limit": "10000"}),
    ]
    assert data.unread == ("x.txt: interim reports (1)",)


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        (
            "Values:     {}00 bytes each\nfillseq      :       2.5 micros/op 1 ops/sec; 47.5 MB/s\n",
            {("benchmark", "fillseq"), ("Values", "100 bytes each"), ("Values", "200 bytes each")},
        ),
        (
            "pkg: a/{}\nBenchmarkRead-8 100 1200 ns/op\n",
            {("benchmark", "BenchmarkRead-8"), ("package", "a/1"), ("package", "a/2")},
        ),
        (
            "Command line: -P workloads/w{} -threads 4 -s -t\n[OVERALL], Throughput(ops/sec), 98.5\n",
            {("operation", "OVERALL"), ("threads", "4"), ("workload", "w1"), ("workload", "w2")},
        ),
        (
            "$ sudo time cp {} b\n\nreal\t0m1.5s\nuser\t0m0.1s\nsys\t0m0.1s\n",
            {("command", "cp 1 b"), ("command", "cp 2 b")},
        ),
    ],
)
def test_what_headings_say_of_a_run_is_a_condition(text: str, conditions: set[tuple[str, str]]) -> None:
    data = of(text.format(1) + text.format(2))
    assert {pair for one in data.observations for pair in one.condition} == conditions
    assert all(len(cell.values) == 1 for cell in cells_of(data))
    assert not data.unread


def test_one_command_in_a_file_is_its_groups() -> None:
    data = of("$ time cp a /mnt/ext4\nreal\t0m1.5s\nuser\t0m0.1s\nsys\t0m0.1s\n" * 2)
    assert {one.condition for one in data.observations} == {()}


def test_sums_of_iozone_have_the_sizes_of_files_and_records_as_conditions() -> None:
    part = (
        "\tEach process writes a 1024 kByte file in {} kByte records\n\n"
        "\tChildren see throughput for  2 readers \t\t= {} kB/sec\n"
    )
    data = of(f"\tIozone: Performance Test of File I/O\n{part.format(4, 1000.5)}{part.format(64, 2000.5)}")
    assert [(o.value, dict(o.condition)) for o in data.observations] == [
        (value, {"processes": "2", "file_kib": "1024", "record_kib": size})
        for value, size in ((1000.5, "4"), (2000.5, "64"))
    ]


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (("a-0", "a-1", "a-2", "b-0", "b-1", "b-2"), {"a", "b"}),
        (("raid-0", "raid-1"), {"raid-0", "raid-1"}),
        (("raid-0", "raid-1", "raid-5"), {"raid-0", "raid-1", "raid-5"}),
        (("qd-0", "qd-2", "qd-4"), {"qd-0", "qd-2", "qd-4"}),
    ],
)
def test_files_numbered_from_0_are_runs_from_three_on(names: tuple[str, ...], groups: set[str]) -> None:
    assert {
        one.stem for one in with_stems([source_of(b"x", name=f"{name}.json") for name in names])
    } == groups


def test_go_pads_the_names_of_benchmarks() -> None:
    data = of("BenchmarkRead/4k-8   \t 1000\t 1200.5 ns/op\nBenchmarkWrite-8 \t--- FAIL: BenchmarkWrite-8\n")
    assert [o.value for o in data.observations] == [1200.5]
    assert [re.search("line [0-9]+", line)[0] for line in data.unread] == ["line 2"]  # type: ignore[index]


def test_tests_side_by_side_are_responses() -> None:
    data = of("size,Sequential Read (MB/s),Random Write (MB/s)\n4k,1.5,2.5\n64k,3.5,4.5\n")
    assert {(group, response) for group, response, *_ in rows(data)} == {
        ("all", "Sequential Read"), ("all", "Random Write"),
    }  # fmt: skip


def test_minutes_stay_minutes() -> None:
    assert {unit for *_, unit in rows(of("array,announced_min,actual_min\na,28.5,43\nb,30,50\n"))} == {"min"}


def test_labels_with_a_number_are_labels() -> None:
    data = of("clients,sync MB/s,async MB/s\n1 Client,10.5,12.5\n2 Clients,20.5,22.5\n")
    assert {(o.group, o.unit, o.condition) for o in data.observations} == {
        (group, "MB/s", (("clients", label),))
        for group in ("sync", "async")
        for label in ("1 Client", "2 Clients")
    }


def test_a_repeated_column_name_is_no_unit() -> None:
    assert {(response, unit) for _, response, _, unit in rows(of("fs,time,time\next4,1.5,2.5\n"))} <= {
        ("time", ""), ("time (2)", ""),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["hyperfine.csv", "hyperfine.md"])
def test_hyperfines_summaries_are_means_and_say_so(name: str) -> None:
    data = of((DATA / name).read_text(), name=name)
    assert {group for group, *_ in rows(data)} == {"sleep 0.01", "sleep 0.02"}
    assert not {response for _, response, *_ in rows(data)} & {
        "stddev",
        "min",
        "max",
        "Min",
        "Max",
        "Relative",
    }
    assert {unit for *_, unit in rows(data)} <= {"s", "ms"}
    if name.endswith("csv"):
        written = re.search(r"sleep 0.01,([0-9.]+),", (DATA / name).read_text())
        assert written is not None
        assert ("sleep 0.01", "mean", float(written[1]), "s") in rows(data)
        assert "--export-json" in " ".join(data.notes)


def test_two_files_of_hyperfine_keep_their_orders() -> None:
    def export(*times: float) -> bytes:
        return json.dumps(
            {"results": [{"command": "a", "times": times}, {"command": "b", "times": times}]}
        ).encode()

    data = read(
        [source_of(export(1, 2), name=name, alone=False) for name in ("x.json", "y.json")], ReadOptions()
    )
    assert [(o.series, o.group, o.place) for o in data.observations] == [
        (series, group, place)
        for series in ("x.json", "y.json")
        for group, places in (("a", (0, 1)), ("b", (2, 3)))
        for place in places
    ]


def test_files_that_do_not_say_which_was_first_have_no_order() -> None:
    def export(label: str, *times: float) -> Source:
        text = json.dumps({"results": [{"command": "a", "times": times}]})
        return source_of(text.encode(), name=f"{label}.json", label=label, alone=False)

    files = [export("old", 1.0, 1.2, 1.1, 1.3, 1.05), export("new", 2.0, 2.2, 2.1, 2.3, 2.05)]
    assert "does not record the order" in " ".join(findings(audit(read(files, ReadOptions()))))


IOZONE_OLD = (
    "\tIozone: Performance Test of File I/O\n"
    "                                                            random  random    bkwd   record   stride\n"
    "              KB  reclen   write rewrite    read    reread    read   write    read  rewrite     read\n"
    "            1024       4  100001  100002   100003   100004  100005  100006  100007   100008   100009\n"
    "            2048       4  200001  200002                     200005  200006\n"
)


def test_iozones_columns_are_those_of_its_header() -> None:
    found = {
        (o.response, dict(o.condition)["file_kib"]): o.value
        for o in of(IOZONE_OLD, name="a.txt").observations
    }
    names = (
        "write",
        "rewrite",
        "read",
        "reread",
        "random_read",
        "random_write",
        "backward_read",
        "record_rewrite",
        "stride_read",
    )
    assert [found[name, "1024"] for name in names] == list(range(100001, 100010))
    assert {key[0]: value for key, value in found.items() if key[1] == "2048"} == {
        "write": 200001, "rewrite": 200002, "random_read": 200005, "random_write": 200006,
    }  # fmt: skip


def test_a_second_table_of_iozone_is_no_repeat_and_a_shifted_row_is_named() -> None:
    data = of(IOZONE_OLD + "\n" + IOZONE_OLD.replace("10000", "30000"), name="a.txt")
    assert {o.series for o in data.observations} == {"", "table 2"}
    between = IOZONE_OLD.split("\n")[2].index("rewrite") + len("rewrite") + 4
    shifted = of(f"{IOZONE_OLD}{'4096       4':>24}{555:>{between - 24}}\n", name="a.txt")
    assert not [o for o in shifted.observations if o.value == 555]
    assert "line 6" in " ".join(shifted.unread)


def test_iozones_cpu_report_is_no_rate() -> None:
    text = '"Writer report"\n "4"\n"64" 31233\n\n"Writer CPU utilization report (Y-axis is percent)"\n "4"\n"64" 12.5\n'
    data = of(text)
    assert [o.value for o in data.observations] == [31233]
    assert "CPU" in " ".join(data.unread)


def test_reports_of_iozone_that_are_not_known_or_damaged_are_named() -> None:
    text = '"Writer report"\n "4" "8"\n"64" 31 32\n"128" 41 4x\n"256" 51 52 53\n\n"Strange report"\n "4"\n"64" 7\n'
    data = of(text)
    assert [o.value for o in data.observations] == [31, 32]
    assert [re.search("line [0-9]+", line)[0] for line in data.unread] == ["line 4", "line 5", "line 7"]  # type: ignore[index]


def test_a_row_of_strace_whose_columns_cut_a_number_is_named() -> None:
    whole = (CORPUS / "strace-cwf.txt").read_text()
    row = next(line for line in whole.split("\n") if line.endswith(" execve"))
    shifted = re.sub(r"1\.34(.*)execve", r"execve\g<1>1.34", row)
    data = of(whole.replace(row, shifted), name="strace-cwf.txt")
    assert not [o for o in data.observations if dict(o.condition)["syscall"] == "1.34"]
    assert "execve" in " ".join(data.unread)


def test_names_with_blanks_or_touching_the_size_in_bonnies_text() -> None:
    data = of(
        "Version  1.03        ------Sequential Output------ --Sequential Input- --Random-\n"
        "                      -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--\n"
        "Machine         Size K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP\n"
        "Raid 0 (8 d.) 15744M 54401  96 247402 90 100703 25 60204  98 226605 29 830.5   1\n"
        "Raid 5 (8 d.)15744M 54411  96 247412 90 100713 25 60214  98 226615 29 831.5   1\n"
        "Raid 6 (8 d.)15744x 54411  96 247412 90 100713 25 60214  98 226615 29 831.5   1\n"
    )
    assert [
        (o.group, o.value, o.condition) for o in data.observations if o.response in ("putc", "seeks")
    ] == [
        (group, value, (("size", "15744M"),))
        for group, values in (("Raid 0 (8 d.)", (54401, 830.5)), ("Raid 5 (8 d.)", (54411, 831.5)))
        for value in values
    ]
    assert len(data.unread) == 1
    assert "15744x" in data.unread[0]


@pytest.mark.parametrize("clients", ["1", "4"])
def test_concurrency_above_the_text_of_bonnie_is_a_condition(clients: str) -> None:
    text = (
        "Version  1.97       ------Sequential Output------ --Sequential Input- --Random-\n"
        f"Concurrency {clients:>3}     -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--\n"
        "Machine        Size K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP\n"
        "box              4G   500  97 70000  15 33000   7  1200  98 95000   8 350.1  12\n"
    )
    data = of(text)
    assert [o.value for o in data.observations] == [500, 70000, 33000, 1200, 95000, 350.1]
    size = (("size", "4G"),)
    assert {o.condition for o in data.observations} == {
        size if clients == "1" else (*size, ("concurrency", "4"))
    }
    assert not data.unread


def test_progress_of_dd_is_no_run_and_its_errors_are_named() -> None:
    text = (
        "536870912 bytes (537 MB, 512 MiB) copied, 1 s, 537 MB/s\r1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2 s, 511 MB/s\r"
        "1024+0 records in\n1024+0 records out\n1073741824 bytes (1.1 GB, 1.0 GiB) copied, 2.15 s, 499 MB/s\n"
        "dd: error writing 'x': No space left on device\n"
    )
    data = of(text)
    assert [o.value for o in data.observations] == [2.15]
    assert len(data.unread) == 3
    assert "No space left" in " ".join(data.unread)


def test_old_and_new_lines_of_bonnie_in_one_file_are_both_read() -> None:
    new = "1.97,1.97,vm,1,1,64M,,100,5,200,6,300,7,400,8,500,9,600,10,16,,,,,11,1,12,1,13,1,14,1,15,1,16,1,,,,,,,,,,,,"
    old = "vm,64M,101,5,201,6,301,7,401,8,501,9,601.5,10,16,111,1,112,1,113,1,114,1,115,1,116,1"
    found = [(o.response, o.value, o.condition) for o in of(f"{new}\n{old}\n").observations]
    assert [v for r, v, _ in found if r == "put_block"] == [200, 201]
    assert [(v, c) for r, v, c in found if r == "seq_create"] == [
        (11, (("files", "16"), ("version", "1.97"))),
        (111, (("files", "16"), ("version", "1.03"))),
    ], "what two versions measured are no repeats"
    assert {
        c for r, _, c in ((o.response, 0, o.condition) for o in of(f"{new}\n").observations) if r == "putc"
    } == {(("size", "64M"),)}


@pytest.mark.parametrize(
    ("name", "line", "damaged"),
    [
        ("own-db_bench.txt", "1.777 micros/op", "1.777 icros/op"),
        ("own-db_bench.txt", "readrandom   :", "readrandom   "),
        ("own-db_bench.txt", "28.3 MB/s", "28.3 B/s"),
        ("own-ycsb.txt", "95thPercentileLatency(us)", "95thPercentileLatency(us"),
        ("own-ycsb.txt", "[READ], MinLatency(us)", "READ], MinLatency(us)"),
        ("bonnie-text.txt", "Latency             60015us", "            60015us"),
        ("bonnie-text.txt", "1  1024  11", "1     0  11"),
        ("own-hdparm.txt", "9005.00 MB/sec\n", "9005.00 MB/sec"),
        ("own-crystaldiskmark.txt", "561.25 us>\n", "561.25 us>"),
    ],
)
def test_a_damaged_line_of_results_is_named(name: str, line: str, damaged: str) -> None:
    whole = (CORPUS / name).read_text()
    assert line in whole
    before, after = of(whole, name=name), of(whole.replace(line, damaged), name=name)
    assert len(after.observations) < len(before.observations)
    assert len(after.unread) > len(before.unread)


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        ("Dateisystem;Lauf;Zeit (s)", "treatment,run,value"),
        ("Durchlauf;Dateisystem;Durchsatz MB/s", "run,treatment,value"),
        ("Einstellung;Wiederholung;Dauer", "treatment,run,value"),
        ("Variante;Blockgröße;Latenz in ms", "treatment,condition,value"),
        ("Dateisystem;Lesen (MB/s);Schreiben (MB/s)", "treatment,value,value"),
        (
            "Konfiguration;Mittelwert;Standardabweichung;Minimum;Maximum",
            "treatment,value,ignore,ignore,ignore",
        ),
        ("Scheduler;Messung 1;Messung 2", "treatment,value,value"),
        ("Lauf;ext4;xfs", "run,value,value"),
    ],
)
def test_german_headers(header: str, roles: str) -> None:
    cells = {"treatment": "{}", "run": "{}", "value": "1,2{}", "condition": "4k", "ignore": "0,1{}"}
    texts = {"run": ["1", "2"], "treatment": ["a", "b"]}
    rows = [
        ";".join(cells[role].format(texts.get(role, ["5", "6"])[at]) for role in roles.split(","))
        for at in (0, 1)
    ]
    data = of("\n".join([header, *rows]) + "\n", name="x.csv")
    assert data.columns == roles
    measured = [
        name for name, role in zip(header.split(";"), roles.split(","), strict=True) if role == "value"
    ]
    assert sorted(one.value for one in data.observations) == sorted([1.25, 1.26] * len(measured))
    assert {one.group for one in data.observations} == ({"ext4", "xfs"} if "ext4" in header else {"a", "b"})


@pytest.mark.parametrize(
    ("text", "column", "option"),
    [
        ("Système;Répétition;Durée\next4;1;1,01\nxfs;2;1,1\n", "Répétition", "treatment,run,value"),
        ("Essai;ext4;xfs\n1;1,25;1,35\n2;1,26;1,36\n", "Essai", "run,value,value"),
        ("Essai;Durée (s)\n1;1,25\n2;1,5\n", "Essai", "run,value"),
        ("Moteur;Moyenne;Max\na;1,25;1,5\nb;1,35;1,6\n", "Max", "treatment,value,ignore"),
    ],
)
def test_what_may_be_a_count_or_an_extreme_is_refused_with_the_option(
    text: str, column: str, option: str
) -> None:
    with pytest.raises(RequestError, match=f"what {column} is") as refused:
        of(text, name="x.csv")
    assert f"--columns {option} " in str(refused.value.hint)
    data = of(text, name="x.csv", columns=tuple(option.split(",")))
    decimals = [float(cell.replace(",", ".")) for cell in re.findall("[0-9],[0-9]+", text)]
    assert {one.value for one in data.observations} <= set(decimals)
    assert len(data.observations) == len(decimals) - 2 * (column == "Max")


OLD_SYSBENCH = """sysbench 0.4.12:  multi-threaded system evaluation benchmark

Number of threads: 4
Block size 16Kb
Doing random r/w test

Operations performed:  600 Read, 400 Write, 1280 Other = 2280 Total
Read 9.375Mb  Written 6.25Mb  Total transferred 15.625Mb  (2.9644Mb/sec)
  189.72 Requests/sec executed

Test execution summary:
    total number of events:              1000
    per-request statistics:
         min:                                  0.01ms
         avg:                                 43.48ms
         max:                               1105.16ms
         approx.  95 percentile:             180.46ms
"""
NEW_SYSBENCH = """  sysbench 1.1.0-df89d34 (using bundled LuaJIT 2.1.0-beta3)

  Number of threads: 128
  Block size 16KiB

  Throughput:
           read:  IOPS=12.50 0.20 MiB/s (0.21 MB/s)
           write: IOPS=31961.19 499.39 MiB/s (523.65 MB/s)
           fsync: IOPS=327500.24

  Latency (ms):
           avg:                                  0.33
           95th percentile:                      0.34
"""


def test_older_and_newer_outputs_of_sysbench() -> None:
    old, new = of(OLD_SYSBENCH), of(NEW_SYSBENCH)
    assert sorted((r, v, u) for _, r, v, u in rows(old)) == [
        ("95th percentile", 180.46, "ms"), ("latency_average", 43.48, "ms"), ("requests", 189.72, "1/s"),
        ("transferred", 2.9644, "MiB/s"),
    ]  # fmt: skip
    assert sorted((r, v, u) for _, r, v, u in rows(new)) == [
        ("95th percentile", 0.34, "ms"), ("fsyncs", 327500.24, "1/s"), ("latency_average", 0.33, "ms"),
        ("read", 0.2, "MiB/s"), ("reads", 12.5, "1/s"), ("writes", 31961.19, "1/s"), ("written", 499.39, "MiB/s"),
    ]  # fmt: skip
    assert dict(old.observations[0].condition)["Number of threads"] == "4"
    assert dict(new.observations[0].condition)["Number of threads"] == "128"
    assert old.unread == new.unread == ()


def test_results_of_other_programs_in_a_file_are_named() -> None:
    dd = (DATA / "dd.txt").read_text()
    assert "what dd printed" in " ".join(of(dd + IOZONE_OLD).unread)
    assert of(IOZONE_OLD + "\n").unread == of(IOZONE_OLD).unread


def test_fio_2_pasted_from_a_mail_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="fio's normal output"):
        of("read : io=102120KB, bw=618740 B/s, iops=151 , runt=169006msec\nclat (usec): min=1, max=2\n")
