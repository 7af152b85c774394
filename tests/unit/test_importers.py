"""Importers on real program output, on tables of every layout, and on files that are neither."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from iotrial.audits.importers import detect, formats, read
from iotrial.audits.importers.cells import parse_cell
from iotrial.audits.importers.contract import MAX_BYTES, ReadOptions, open_source, source_of
from iotrial.audits.model import Dataset
from iotrial.errors import IotrialError, RequestError, UnknownName

DATA = Path(__file__).parents[1] / "data" / "audit"
IOZONE = (
    "\tIozone: Performance Test of File I/O\n\tOutput is in kBytes/sec\n"
    "                                                              random    random     bkwd    record    stride\n"
    "              kB  reclen    write  rewrite    read    reread    read     write     read   rewrite"
    "      read   fwrite frewrite    fread  freread\n"
    "           16384       4    55907    68813    43361    42502    34044    64746    33578    61774"
    "     30137   235263   233180  3905668  3824589\n"
    "          102400    1024   383514   386945                     378221   386509\n"
    "\niozone test complete.\n"
)
REPORTS = (
    '"Writer report"\n        "4"  "8"\n"64"   31233  32133 \n"128"  4000\n\n'
    '"Re-Reader report"\n        "4"\n"64"  900 \n'
)


def text(content: str, *, name: str = "x.txt", **options: object) -> Dataset:
    return read([source_of(content.encode(), name=name)], ReadOptions(**options))


def files(*names: str, labels: tuple[str | None, ...] = ()) -> Dataset:
    given = labels or (None,) * len(names)
    return read(
        [
            open_source(DATA / name, name=name, label=label, alone=len(names) == 1)
            for name, label in zip(names, given, strict=True)
        ],
        ReadOptions(),
    )


def one(data: Dataset, response: str, **condition: str) -> float:
    (found,) = (
        o.value
        for o in data.observations
        if o.response == response and dict(o.condition).items() >= condition.items()
    )
    return found


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("hyperfine.json", "hyperfine"),
        ("hyperfine.csv", "csv"),
        ("fio-1.json", "fio"),
        ("fio-mixed.json", "fio"),
        ("bonnie.txt", "bonnie"),
        ("bonnie.csv", "bonnie"),
        ("strace-plain.txt", "strace"),
        ("strace-w.txt", "strace"),
        ("strace-U.txt", "strace"),
    ],
)
def test_real_outputs_are_recognised(name: str, form: str) -> None:
    assert detect(open_source(DATA / name, name=name, label=None, alone=True)).name == form


def test_hyperfine_gives_all_times_in_the_order_of_its_runs() -> None:
    results = json.loads((DATA / "hyperfine.json").read_text())["results"]
    data = files("hyperfine.json")
    assert [o.value for o in data.observations] == [t for result in results for t in result["times"]]
    assert [o.place for o in data.observations] == list(range(36))
    assert {o.group for o in data.observations} == {result["command"] for result in results}


def test_a_command_measured_twice_by_hyperfine_is_two_series_and_a_failed_run_is_none() -> None:
    content = {
        "results": [
            {"command": "a", "times": [1.0, 1.1], "exit_codes": [0, 1]},
            {"command": "a", "times": [1.2]},
        ]
    }
    data = text(json.dumps(content))
    assert [(o.series, o.value) for o in data.observations] == [("", 1.0), ("again 2", 1.2)]
    assert "exit status" in data.unread[0]


def test_fio_files_are_repeats_and_bw_is_kib() -> None:
    data = files("fio-1.json", "fio-2.json", "fio-3.json")
    for number in (1, 2, 3):
        job = json.loads((DATA / f"fio-{number}.json").read_text())["jobs"][0]
        assert job["read"]["bw"] * 1024 == pytest.approx(job["read"]["bw_bytes"], rel=0.01)
        assert job["read"]["bw"] in [o.value for o in data.observations if o.response == "read_bw"]
    assert {o.group for o in data.observations} == {"fio"}
    assert {dict(o.condition)["rw"] for o in data.observations} == {"read", "randrw"}
    assert len([o for o in data.observations if o.response == "write_iops"]) == 3
    labelled = files("fio-1.json", "fio-2.json", labels=("a", "b"))
    assert {o.group for o in labelled.observations} == {"a", "b"}


def test_fio_below_its_normal_output_is_found() -> None:
    whole = (DATA / "fio-mixed.json").read_text()
    job = json.loads(whole[whole.index("\n{") : whole.rindex("\n}") + 2])["jobs"][0]
    assert one(files("fio-mixed.json"), "write_clat_mean") == job["write"]["clat_ns"]["mean"]


@pytest.mark.parametrize("name", ["strace-plain.txt", "strace-w.txt", "strace-U.txt"])
def test_strace_adds_up_to_its_own_total(name: str) -> None:
    data = files(name)
    for response in ("seconds", "calls", "errors"):
        rows = [o for o in data.observations if o.response == response and o.series == ""]
        total = sum(o.value for o in rows if dict(o.condition)["syscall"] == "total")
        parts = [o.value for o in rows if dict(o.condition)["syscall"] != "total"]
        assert total == pytest.approx(math.fsum(parts), abs=1e-5)
    assert data.traced == "strace -c"


def test_strace_counts_what_its_lines_say() -> None:
    line = next(row for row in (DATA / "strace-plain.txt").read_text().split("\n") if row.endswith(" openat"))
    _, seconds, _, calls, errors, _ = line.split()
    data = files("strace-plain.txt")
    assert one(data, "seconds", syscall="openat") == float(seconds)
    assert one(data, "calls", syscall="openat") == float(calls)
    assert one(data, "errors", syscall="openat") == float(errors)
    assert {o.group for o in data.observations} == {"strace-plain"}


def test_bonnies_csv_has_the_fields_that_its_manual_names() -> None:
    line = (
        "1.98,2.00a,m,1,1608143422,1G,,8192,5,100,50,200,60,300,70,400,80,500,90,600.5,10,16,,,,,7001,1,7002,2,7003,3,"
        "7004,4,7005,5,7006,6," + ",".join(f"{1000 + i}us" for i in range(1, 13))
    )
    data = text(line)
    # what bon_csv2txt prints for the same line
    assert [one(data, n, size="1G") for n in ("putc", "put_block", "rewrite", "getc", "get_block", "seeks")] == [
        100, 200, 300, 400, 500, 600.5,
    ]  # fmt: skip
    assert one(data, "seq_create") == 7001
    assert one(data, "ran_del") == 7006
    assert one(data, "putc_latency") == 1001
    assert one(data, "ran_del_latency") == 1012


def test_bonnies_text_is_read_where_there_is_no_csv() -> None:
    content = (
        "Version  1.94       ------Sequential Output------ --Sequential Input- --Random-\n"
        "Concurrency   1     -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--\n"
        "Machine        Size K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP\n"
        "fin            300M    48  99  6224  75  1782  37   124  99  2874  26 100.4   5\n"
        "Latency               348ms     428ms     936ms   84000us     788ms     543ms\n"
        "Version  1.94       ------Sequential Create------ --------Random Create--------\n"
        "fin                 -Create-- --Read--- -Delete-- -Create-- --Read--- -Delete--\n"
        "              files  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP  /sec %CP\n"
        "                 16   233  99  6543 100  3690  89   235  99  6907 100   825  98\n"
    )
    data = text(content)
    assert one(data, "put_block", size="300M") == 6224
    assert one(text(content.replace(" 6224", "  12m")), "put_block", size="300M") == 12 * 1024
    assert one(data, "seeks") == 100.4
    assert one(data, "ran_del") == 825
    assert one(data, "seq_create") == 233


def test_plus_signs_of_bonnie_are_left_out_and_said() -> None:
    data = files("bonnie.csv")
    (unread,) = data.unread
    assert "+++" in unread
    assert {o.response for o in data.observations if o.unit == "KiB/s"} == {"putc", "getc"}


def test_blank_columns_of_iozone_stay_blank() -> None:
    data = text(IOZONE)
    assert one(data, "freread", file_kib="16384") == 3824589
    assert one(data, "stride_read", file_kib="16384") == 30137
    assert one(data, "random_read", file_kib="102400") == 378221
    assert one(data, "random_write", file_kib="102400") == 386509
    assert len([o for o in data.observations if dict(o.condition)["file_kib"] == "102400"]) == 4


def test_iozone_says_what_its_numbers_are() -> None:
    said = {"kBytes/sec": "KiB/s", "operations per second": "1/s", "microseconds per operation": "us"}
    for words, unit in said.items():
        (found,) = {
            o.unit
            for o in text(IOZONE.replace("Output is in kBytes/sec", f"Output is in {words}")).observations
        }
        assert found == unit


def test_iozones_reports_are_read() -> None:
    data = text(REPORTS)
    assert one(data, "write", file_kib="64", record_kib="8") == 32133
    assert one(data, "write", file_kib="128", record_kib="4") == 4000
    assert one(data, "reread") == 900


def test_iozones_sums_are_read() -> None:
    data = text(
        "Iozone: Performance Test of File I/O\n\tChildren see throughput for 16 initial writers \t=  1234.56 kB/sec\n"
    )
    assert one(data, "initial_writers", processes="16") == 1234.56


def test_a_wide_table_has_a_group_a_column() -> None:
    data = text("run,a_s,b_s\n1,1.0,2.0\n2,1.5,2.5\n")
    assert {(o.group, o.response, o.unit) for o in data.observations} == {
        ("a", "time", "s"),
        ("b", "time", "s"),
    }
    assert {o.run for o in data.observations} == {1, 2}


def test_columns_of_several_units_are_families() -> None:
    data = text("delay_ms,without_s,with_s,cpu_without_percent,cpu_with_percent\n500,16.2,7.6,10,5\n")
    assert {(o.group, o.response, o.unit) for o in data.observations} == {
        ("without", "time", "s"), ("with", "time", "s"), ("without", "cpu", "%"), ("with", "cpu", "%"),
    }  # fmt: skip
    assert {o.condition for o in data.observations} == {(("delay_ms", "500"),)}


def test_repeats_side_by_side_and_labels_with_leading_zeros() -> None:
    data = text("mode;run1;run2\n0444;1;2\n0777;3;4\n", unit="ms")
    assert [(o.group, o.run, o.value, o.unit) for o in data.observations if o.group == "0444"] == [
        ("0444", 0, 1.0, "ms"), ("0444", 1, 2.0, "ms"),
    ]  # fmt: skip


def test_columns_can_be_named() -> None:
    content = "when,box,kind,speed,other\n1,x,a,5,1\n2,x,b,6,1\n"
    data = text(content, group="kind", values=("speed",), conditions=("box",), order="when", unit="MB/s")
    assert [(o.group, o.value, o.place, o.condition) for o in data.observations] == [
        ("a", 5.0, 1.0, (("box", "x"),)), ("b", 6.0, 2.0, (("box", "x"),)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "empty"),
        ("a\nb\n", "unknown format"),
        ("a,b\nx,y\n", "no column of numbers"),
        ("a,b\n1,2,3\n", "row 1 has 3 cells"),
        ("#: nonsense = 1\na,b_s\nx,2\n", "directive"),
        ("#: unit\na,b_s\nx,2\n", "key = value"),
        ("#: group = nope\na,b_s\nx,2\n", "column"),
        ('{"results": [{"command": "a", "times": ["x"]}]}', "not a number"),
        ('{"results": [{"command": "a", "times": [1e999]}]}', "not a number"),
        ('{"results": [{"command": "a", "times": [', "not JSON"),
        ('{"fio version": "3", "jobs": 3}', "no result of fio"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_word_on_where(content: str, match: str) -> None:
    with pytest.raises(IotrialError, match=match):
        text(content)


def test_numbers_that_are_none_are_left_out() -> None:
    data = text("group,time_s\na,1\nb,\nc,-\n")
    assert [o.group for o in data.observations] == ["a"]


def test_limits_hold() -> None:
    with pytest.raises(RequestError, match="32 MiB"):
        source_of(b"x" * (MAX_BYTES + 1), name="x")
    with pytest.raises(RequestError, match="rows"):
        text("a,b_s\n" + "x,1\n" * 200_001)
    with pytest.raises(RequestError, match="columns"):
        text(",".join(f"c{i}" for i in range(600)) + "\n" + ",".join("1" * 600) + "\n")
    with pytest.raises(RequestError, match="not a text file"):
        source_of(b"a,b\0", name="x")


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(UnknownName, match="nope"):
        read([source_of(b"a,b\n1,2", name="x")], ReadOptions(), form="nope")
    assert list(formats())[-1] == "csv"


def measured(data: Dataset) -> list[tuple[str, str, float, str]]:
    return [(o.group, o.response, o.value, o.unit) for o in data.observations]


def test_units_inside_cells_are_honoured() -> None:
    data = text("kind,time\na,1.0 s\na,1200 ms\nb,1.5s\nb,0m1.25s\n")
    assert measured(data) == [
        ("a", "time", 1.0, "s"), ("a", "time", 1.2, "s"), ("b", "time", 1.5, "s"), ("b", "time", 1.25, "s"),
    ]  # fmt: skip
    assert [o.step for o in data.observations] == pytest.approx([0.01, 0.001, 0.01, 0.01])


def test_the_unit_of_the_column_is_that_of_cells_without_one() -> None:
    data = text("kind,time_ms\na,1 s\nb,1200\n")
    assert measured(data) == [("a", "time", 1000.0, "ms"), ("b", "time", 1200.0, "ms")]
    data = text("kind,time\na,1 s\nb,1200\n", unit="ms")
    assert [o.value for o in data.observations] == [1000.0, 1200.0]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("kind,time\na,1 s\nb,1200\n", 'row 2 "1200" has no unit'),
        ("kind,time_s\na,1 s\nb,30 MB/s\n", 'row 2 "30 MB/s" is not a value in s'),
        ("kind,run1_s,run2_mb\na,1,2\nb,1 MB,2\n", 'row 2 "1 MB" is not a value in s'),
    ],
)
def test_units_that_contradict_each_other_are_refused(content: str, match: str) -> None:
    with pytest.raises(RequestError, match=match) as refused:
        text(content)
    assert refused.value.hint


def test_quantities_that_differ_are_separate_responses() -> None:
    data = text("kind,value\na,1.0 s\na,30 MB/s\nb,1200 ms\nb,40 MB/s\n")
    assert {(o.response, o.unit) for o in data.observations} == {("value (s)", "s"), ("value (MB/s)", "MB/s")}
    data = text("kind,time_s,time_ms\na,1,1000\nb,2,2000\n")
    assert {(o.response, o.unit) for o in data.observations} == {("time (s)", "s"), ("time (ms)", "ms")}


def test_repeats_side_by_side_may_each_have_a_unit_of_one_quantity() -> None:
    data = text("kind,run1_s,run2 (s),run3_ms\na,1.0,1.1,1200\n")
    assert [(o.response, o.unit, o.run, o.value) for o in data.observations] == [
        ("time", "s", 0, 1.0), ("time", "s", 1, 1.1), ("time", "s", 2, 1.2),
    ]  # fmt: skip


def test_files_of_one_response_are_brought_to_one_unit() -> None:
    sources = [
        source_of(b"kind,time_s\na,1.5\n", name="a.csv", alone=False),
        source_of(b"kind,time_ms\nb,1200\n", name="b.csv", alone=False),
    ]
    assert measured(read(sources, ReadOptions())) == [("a", "time", 1.5, "s"), ("b", "time", 1.2, "s")]


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("Konfiguration;Zeit (s)\nalt;1,25\nneu;0,5\n", [1.25, 0.5]),
        ("Konfiguration;Zeit (s)\nalt;1.234,5\nneu;1.250\n", [1234.5, 1250.0]),
        ("sep=;\nkind;a (s);b (s)\nx;1,25;1,234\n", [1.25, 1.234]),  # the other column decides
        ('kind,time_s\na,"1,25"\nb,"1,3"\n', [1.25, 1.3]),
        ('kind,time_s\na,"1,234.5"\nb,"1,300"\n', [1234.5, 1300.0]),
        ("kind;time_s\na;1.25\nb;1.234\n", [1.25, 1.234]),
        ("kind;time_s\na;1\u202f234,5\nb;1\u00a0300,0\n", [1234.5, 1300.0]),
        ("kind;time\na;1,5 s\nb;1200 ms\n", [1.5, 1.2]),
        ("#: decimal = comma\nkind;time_s\na;1,234\n", [1.234]),
        ("#: decimal = point\nkind;time_s\na;1,234\n", [1234.0]),
    ],
)
def test_decimal_commas_are_read_where_they_are_unambiguous(content: str, values: list[float]) -> None:
    assert [o.value for o in text(content).observations] == values


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("kind;time_s\na;1,234\nb;1,250\n", 'row 1 "1,234"'),
        ("kind;time_s\na;1,25\nb;1.25\n", 'row 1 "1,25".*row 2 "1.25"'),
        ("kind;time_s;other_s\na;1,25;1.234\n", 'other_s: row 1 "1.234"'),
    ],
)
def test_ambiguous_decimal_marks_are_refused_and_the_cell_is_named(content: str, match: str) -> None:
    with pytest.raises(RequestError, match=match) as refused:
        text(content)
    assert "--decimal" in str(refused.value.hint)


def test_unquoted_decimal_commas_between_commas_are_named() -> None:
    with pytest.raises(RequestError, match="row 1 has 3 cells") as refused:
        text("kind,time_s\na,1,25\n")
    assert "decimal" in str(refused.value.hint)


def test_cells_without_a_number_are_named_with_their_rows() -> None:
    data = text("kind,time_s\na,1\na,NaN\na,\na,failed\na,1e200\nb,2\nb,3\nb,#DIV/0!\n")
    assert [o.value for o in data.observations] == [1, 2, 3]
    (note,) = data.unread
    for part in (
        "time_s",
        "5 of 8",
        'row 2 "NaN"',
        "row 3 empty",
        'row 4 "failed"',
        'row 5 "1e200"',
        "row 8",
    ):
        assert part in note


def test_a_column_of_nothing_is_no_condition() -> None:
    data = text("kind,time_s,other_s\na,1,NaN\nb,2,\n")
    assert {o.condition for o in data.observations} == {()}
    assert "other_s" in data.unread[0]
    with pytest.raises(RequestError, match=r'time_s.*row 1 "NaN"'):
        text("kind,time_s\na,NaN\nb,NaN\n")


@pytest.mark.parametrize(
    ("content", "values", "named"),
    [
        ("run,a_s,b_s\n1,10,11\n2,12,13\navg,11,12\n", [10, 12, 11, 13], "row 3 (avg)"),
        ("fs,time_s\na,1\nb,2\nTotal,3\n", [1, 2], "row 3 (total)"),
        ("stat,a,b\nmean,1.5,1.6\nstddev,.1,.2\nmax,2,2\n", [1.5, 1.6], "row 2 (stddev)"),
        ("fs,time_s,mad\na,1.5,.1\nb,1.6,.2\n", [1.5, 1.6], "mad"),
        ("fs,time_s,+/-\na,1.5,.1\nb,1.6,.2\n", [1.5, 1.6], "+/-"),
        ("fs,time_s,odd\na,1.5,.1\nb,1.6,.2\n", [1.5, 1.6], "odd"),
        ("fs,time_s\na,1.25\nb\n", [1.25], "row 2 with fewer cells"),
        ("|a|1|\n\n|fs|time_s|\n|--|--|\n|b|2|\ntext\n|c|3|\n", [2], "2 lines with cells outside"),
        ("fs,run1,run2,run\na,1.5,1.25,1.75\nb,2.5,2.25,2.75\n", [1.5, 2.5, 1.25, 2.25], "run:"),
        (
            "text\n\n|fs|time_s|\n|--|--|\n|a|1|\n\n|fs|time_s|\n|--|--|\n|a|9|\n",
            [1],
            "1 more Markdown table",
        ),
    ],
)
def test_statistics_and_rows_that_are_left_out_are_named(
    content: str, values: list[float], named: str
) -> None:
    data = text(content)
    assert [o.value for o in data.observations] == values
    assert named in " ".join(data.unread)


def test_a_table_of_psql_is_read() -> None:
    data = text(" fs   | time_s \n------+--------\n ext4 |    1.5\n xfs  |   1.25\n(2 rows)\n")
    assert [(o.group, o.value) for o in data.observations] == [("ext4", 1.5), ("xfs", 1.25)]


@pytest.mark.parametrize("levels", ["min,default,max", "low,high", "ext4,mean-field", "10%,90%", "p1,p2"])
def test_words_that_are_statistics_elsewhere_can_be_treatments(levels: str) -> None:
    names = levels.split(",")
    data = text("level,time_s\n" + "".join(f"{name},{at}.5\n" for at, name in enumerate(names)))
    assert [o.group for o in data.observations] == names


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("fs,time_s\na,1.2345\na,1.2345\nb,2.5\n", "rows 1 and 2 are identical"),
        ("fs,run,time_s\na,1,5\na,1,6\nb,1,7\n", "run 1 of a occurs 2 times"),
        ("fs,time_s\na,5\nb,12", "ends within a line"),
    ],
)
def test_what_may_be_a_copy_or_cut_off_is_noted(content: str, note: str) -> None:
    assert note in " ".join(text(content).notes)


def test_a_file_given_twice_is_noted() -> None:
    sources = [source_of(b"fs,time_s\na,5\n", name=name, alone=False) for name in ("x.csv", "y.csv")]
    assert "y.csv has the same content as x.csv" in read(sources, ReadOptions()).notes


@pytest.mark.parametrize(
    ("content", "values", "unit"),
    [
        ("fs,IOPS\na,1.2M\nb,35.2k\n", [1.2e6, 35200.0], "1/s"),
        ("fs,rate\na,3.9 Gbps\nb,900 Mbps\n", [3.9, 0.9], "Gbps"),
        ("fs,rate MBps\na,3.5\nb,4.5\n", [3.5, 4.5], "MBps"),
    ],
)
def test_prefixes_and_rates_written_with_ps(content: str, values: list[float], unit: str) -> None:
    data = text(content)
    assert [o.value for o in data.observations] == pytest.approx(values)
    assert {o.unit for o in data.observations} == {unit}


def test_a_cut_or_incomplete_table_of_strace_is_named() -> None:
    whole = (DATA / "strace-plain.txt").read_text()
    cut = whole[: whole.index(" total")].rpartition("\n")[0] + "\n"
    assert "no row of totals" in " ".join(text(cut).unread)
    lines = [line for line in whole.split("\n") if not line.endswith(" openat")]
    assert "cut off or damaged" in " ".join(text("\n".join(lines)).unread)
    assert not text(whole).unread


def test_a_cut_line_of_bonnie_is_named() -> None:
    whole = (DATA / "bonnie.csv").read_text()
    first, *rest = whole.split("1.98,")[1:]
    data = text(f"1.98,{first}1.98,{rest[0][:80]}\n", name="x.csv")
    assert "cut off" in " ".join(data.unread)
    assert data.observations == text(f"1.98,{first}", name="x.csv").observations


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("1m02.5s", (62.5, "s")),
        ("62.5 s", (62.5, "s")),
        ("12.3 ± 0.4", (12.3, "")),
        ("0444", None),
        ("4k", None),
        ("0", (0.0, "")),
    ],
)
def test_a_cell_is_a_number_with_its_unit_or_a_label(cell: str, number: tuple[float, str] | None) -> None:
    found = parse_cell(cell)
    assert (None if found is None else (found.value, found.unit)) == number


def test_a_label_is_one_line() -> None:
    data = text('kind,time_s\n"a\nb\tc",1\nd,2\n')
    assert [o.group for o in data.observations] == ["a b c", "d"]


def test_a_line_of_bonnie_with_a_field_too_many_is_not_read_one_column_further() -> None:
    whole = (DATA / "bonnie.csv").read_text()
    first, second = [line for line in whole.splitlines() if line.startswith("1.98,")][:2]
    fields = second.split(",")
    data = text("\n".join([first, ",".join([*fields[:30], "", *fields[30:]])]) + "\n", name="x.csv")
    assert [o.value for o in data.observations] == [
        o.value for o in text(f"{first}\n", name="x.csv").observations
    ]
    assert "cut off or damaged" in " ".join(data.unread)


def test_observations_know_their_row() -> None:
    assert [o.row for o in text("kind,time_s\na,1\nb,\nb,2\n").observations] == [1, 3]
