"""fio's results: what is a repeat, what a condition, and what clones add up to. The files are fio 3.33's own output."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from iotrial.audits.audit import audit
from iotrial.audits.importers import read
from iotrial.audits.importers.contract import ReadOptions, source_of
from iotrial.audits.model import Dataset
from iotrial.errors import RequestError, UnknownName
from iotrial.workloads.fio_result import picked, result_of

DATA = Path(__file__).parents[1] / "data" / "audit" / "fio"


def of(files: dict[str, str], **options: Any) -> Dataset:
    sources = [source_of(text.encode(), name=name, alone=len(files) == 1) for name, text in files.items()]
    return read(sources, ReadOptions(**options))


def real(name: str) -> Dataset:
    return of({name: (DATA / name).read_text()})


def values(data: Dataset, response: str) -> list[float]:
    return [one.value for one in data.observations if one.response == response]


def job(name: str, bw: float, *, groupid: int = 0, error: int = 0, **options: object) -> dict[str, Any]:
    part = {"bw": bw, "iops": bw / 4, "total_ios": 100, "io_bytes": bw * 1024 * 10, "runtime": 10_000}
    rest = {"write": {"total_ios": 0}, "usr_cpu": 1.5, "sys_cpu": 2.5}
    return {"jobname": name, "groupid": groupid, "error": error, "job options": options, "read": part, **rest}


def result(*jobs: dict[str, Any], at: int = 1, shared: dict[str, str] | None = None) -> str:
    more = {} if shared is None else {"global options": shared}
    return json.dumps(
        {"fio version": "fio-3.33", "timestamp_ms": at * 1000, "jobs": list(jobs), **more}, indent=1
    )


def test_file_names_are_groups_and_options_conditions() -> None:
    rates = {"ext4": {"4k": 1000, "64k": 8000, "1m": 20000}, "xfs": {"4k": 1100, "64k": 8800, "1m": 22000}}
    files = {
        f"{system}-{at}.json": result(job("read", rate, bs=bs, rw="read"))
        for system, by_size in rates.items()
        for at, (bs, rate) in enumerate(by_size.items(), 1)
    }
    pairs = [one for one in audit(of(files)).comparisons if one.response == "read_bw"]
    assert [(one.group, one.reference, one.condition, one.n) for one in pairs] == [
        ("xfs", "ext4", {"bs": bs}, 1) for bs in ("4k", "64k", "1m")
    ]
    assert [one.ratio for one in pairs] == pytest.approx([1.1] * 3)


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["ext3.json", "ext4.json"], {"ext3", "ext4"}),
        (["raid-0.json", "raid-5.json"], {"raid-0", "raid-5"}),
        (["a-1.json", "a-2.json", "b-1.json"], {"a", "b"}),
        (["a-run1.json", "a-run2.json", "b-run1.json"], {"a", "b"}),
        (["old/1.json", "old/2.json", "new/1.json"], {"old", "new"}),
        (["r/ext4/fio.json", "r/xfs/fio.json"], {"ext4", "xfs"}),
        (["1.json", "2.json"], {"all"}),
        (["4k-qd1.json", "4k-qd2.json"], {"4k-qd1", "4k-qd2"}),
        (["fio-3.33-ext4.json", "fio-3.33-xfs.json"], {"fio-3.33-ext4", "fio-3.33-xfs"}),
    ],
)
def test_only_consecutive_numbers_are_repeats(names: list[str], groups: set[str]) -> None:
    assert {one.group for one in of({name: result(job("j", 5)) for name in names}).observations} == groups


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("{fs}-qd{}.json", {"iodepth": ["1", "32"]}),
        ("{fs}-qd-{}-{run}.json", {"iodepth": ["1", "2"]}),
        ("{fs}_{}qd_{run}.json", {"iodepth": ["4", "64"]}),
        ("{}/{fs}/{run}.json", {"bs": ["4k", "1m"]}),
        ("4kib-{fs}-iodepth={}.json", {"iodepth": ["1", "8"]}),
        ("{fs}_bs{}_nj{}.json", {"bs": ["4k", "64K"], "numjobs": ["1", "4"]}),
        ("{fs}-{}-{}-q{}.run{run}.json", {"rw": ["randread", "write"], "bs": ["4k", "128k"], "iodepth": ["1", "16"]}),
        ("{fs}.{}.json", {"rw": ["read", "randrw"]}),
        ("{}_{fs}_{}.json", {"ioengine": ["io_uring", "psync"], "size": ["1g", "100m"]}),
        ("{fs}-direct{}.json", {"direct": ["0", "1"]}),
        ("{fs}/iodepth-00{}/{run}.json", {"iodepth": ["1", "7"]}),
    ],
)  # fmt: skip
def test_options_in_file_names_are_conditions(name: str, options: dict[str, list[str]]) -> None:
    wanted, files = set(), {}
    for at, (fs, *values_, run) in enumerate(itertools.product(["ext4", "xfs"], *options.values(), [1, 2])):
        given = dict(zip(options, values_, strict=True))
        files[name.format(*values_, fs=fs, run=run)] = result(job("j", 100.0 + at, **given))
        wanted.add((fs, frozenset(given.items())))
    data = of(files)
    groups = {one.group for one in data.observations}
    assert len(groups) == 2
    assert {
        (next(fs for fs in ("ext4", "xfs") if fs in one.group), frozenset(one.condition))
        for one in data.observations
    } == wanted
    assert all(option in data.notes[-1] for option in options)


def test_file_names_with_nothing_but_a_load_are_one_group() -> None:
    data = of({f"qd{depth}.json": result(job("j", 5, iodepth=depth)) for depth in (1, 32)})
    assert {(one.group, one.condition) for one in data.observations} == {
        ("all", (("iodepth", "1"),)), ("all", (("iodepth", "32"),)),
    }  # fmt: skip
    assert "--group iodepth" in data.notes[-1]


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        ({"raid-0": "0", "raid-5": "5"}, {"raid-0", "raid-5"}),  # a number alone is no depth
        ({"mmap": "1", "psync": "1"}, {"mmap", "psync"}),
        ({"old=qd1": "1", "qd32=qd32": "32"}, {"old", "qd32"}),  # labels are the user's
    ],
)
def test_other_words_of_file_names_are_groups(names: dict[str, str], groups: set[str]) -> None:
    sources = []
    for name, depth in names.items():
        label, equals, file = name.rpartition("=")
        one = result(job("j", 5, iodepth=depth, ioengine=name))
        sources.append(
            source_of(one.encode(), name=f"{file}.json", label=label if equals else None, alone=False)
        )
    assert {one.group for one in read(sources, ReadOptions()).observations} == groups


def test_jobs_of_one_file_that_do_different_work_are_conditions() -> None:
    whole = result(job("seq", 100, rw="read"), job("rand", 20, rw="randread"))
    data = of({"disk.json": whole})
    assert {(one.group, one.condition) for one in data.observations} == {
        ("disk", (("rw", "read"),)), ("disk", (("rw", "randread"),)),
    }  # fmt: skip
    assert data.notes == ("the jobs differ in rw; --group rw compares them by it",)
    compared = of({"disk.json": whole}, group="rw")
    assert {(one.group, one.condition) for one in compared.observations} == {("read", ()), ("randread", ())}
    with pytest.raises(UnknownName, match="nope"):
        of({"disk.json": whole}, group="nope")


def test_jobs_of_one_file_that_do_the_same_are_treatments() -> None:
    data = of({"disk.json": result(job("none", 100, rw="read"), job("mq-deadline", 90, rw="read"))})
    assert {one.group for one in data.observations} == {"none", "mq-deadline"}


def test_global_options_count_and_other_spellings_are_one_option() -> None:
    files = {
        "a.json": result(job("j", 1, blocksize="4k"), shared={"direct": "1"}),
        "b.json": result(job("j", 2, bs="4k"), shared={"direct": "0"}),
    }
    data = of(files)
    assert {one.condition for one in data.observations} == {()}
    assert data.notes == ("the groups differ in direct as well: a 1, b 0",)


def test_namesakes_that_ran_in_turn_are_repeats_in_order() -> None:
    data = of(
        {
            "x.json": result(
                job("seq", 1000, groupid=0), job("seq", 1100, groupid=1), job("seq", 900, groupid=2)
            )
        }
    )
    assert values(data, "read_bw") == [1000, 1100, 900]
    places = [one.place for one in data.observations if one.response == "read_bw"]
    assert None not in places
    assert places == sorted(set(places), key=lambda place: place or 0)
    assert len(values(real("turn.json"), "read_bw")) == 3


def test_clones_are_what_fio_itself_says_of_their_group() -> None:
    text = (DATA / "clones.txt").read_text()
    jobs = json.loads(text[text.index("\n{") : text.rindex("\n}") + 2])["jobs"]
    data = real("clones.txt")
    (rate,) = values(data, "read_bw")
    printed = re.search(r"READ: bw=(\d+)MiB/s", text)
    assert len(jobs) == 4
    assert printed is not None
    assert rate / 1024 == pytest.approx(int(printed[1]), abs=0.5)
    waits = sorted(
        float(at) for one in jobs for at, n in one["read"]["clat_ns"]["bins"].items() for _ in range(n)
    )
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        (found,) = values(data, f"read_clat_{name}")
        assert sum(one <= found for one in waits) >= share * len(waits) > sum(one < found for one in waits)
    (mean,) = values(data, "read_clat_mean")
    assert mean == pytest.approx(sum(waits) / len(waits), rel=0.01)


def test_the_mean_latency_of_clones_counts_each_operation_once() -> None:
    clones = [job("a", 100), job("a", 100)]
    for one, n, mean in zip(clones, (100, 300), (1000.0, 2000.0), strict=True):
        one["read"] |= {"total_ios": n, "clat_ns": {"mean": mean, "max": 3000, "N": n}}
    assert values(of({"x.json": result(*clones)}), "read_clat_mean") == [(100 * 1000 + 300 * 2000) / 400]


def test_clones_without_amounts_or_histograms_have_no_rate_and_no_percentiles() -> None:
    clones = [job("a", 100), job("a", 150)]
    for one in clones:
        del one["read"]["io_bytes"]
        one["read"]["clat_ns"] = {"mean": 5.0, "max": 9, "N": 100, "percentile": {"99.000000": 7}}
    data = of({"x.json": result(*clones)})
    assert not values(data, "read_bw")
    assert not values(data, "read_clat_p99")
    assert values(data, "read_clat_mean") == [5.0]
    assert "x.json: job a: percentiles of 2 clones (json+ has their histograms)" in data.unread


@pytest.mark.parametrize("around", ["{}\n{}\n", "{}{}", ">{}\n>{}\n", "[{},\n {}]\n"])
def test_results_are_found_wherever_they_begin(around: str) -> None:
    data = of({"x.json": around.format(result(job("a", 100), at=1), result(job("a", 150), at=99))})
    assert values(data, "read_bw") == [100, 150]
    assert not [line for line in data.unread if "damaged" in line]


def test_a_result_that_is_cut_off_does_not_hide_the_next() -> None:
    data = of({"x.json": f"{result(job('a', 100))[:-20]}\n{result(job('a', 150), at=99)}\n"})
    assert values(data, "read_bw") == [150]
    assert "damaged" in " ".join(data.unread)


def test_clients_are_conditions_and_their_sum_is_named() -> None:
    names = [("a", 8765, 100.0), ("a", 8766, 200.0), ("All clients", 8766, 150.0)]
    clients = [job(name, bw) | {"hostname": "h", "port": port} for name, port, bw in names]
    text = result().replace('"jobs": []', f'"client_stats": {json.dumps(clients)}')
    data = of({"x.json": text})
    assert [(o.value, o.condition) for o in data.observations if o.response == "read_bw"] == [
        (100, (("client", "h:8765"),)), (200, (("client", "h:8766"),)),
    ]  # fmt: skip
    assert "x.json: All clients (the sum of the others)" in data.unread


def test_seconds_of_fio_2_and_milliseconds_of_fio_3_are_one_clock() -> None:
    older = json.dumps({"fio version": "fio-2.2.10", "timestamp": 2000, "jobs": [job("a", 200)]}, indent=1)
    data = of({"a-1.json": result(job("a", 100), at=1000), "a-2.json": older})
    assert [one.place for one in data.observations if one.response == "read_bw"] == [1_000_000, 2_000_000]


def test_a_job_with_a_failed_clone_is_left_out_with_the_error() -> None:
    data = of({"x.json": result(job("a", 5), job("b", 1, rw="write"), job("b", 2, error=28, rw="write"))})
    assert len(values(data, "read_bw")) == 1
    assert data.unread == ("x.json: job b (ended with error 28: No space left on device)",)
    with pytest.raises(RequestError, match="No space left"):
        of({"x.json": result(job("a", 5, error=28))})


def test_appended_results_are_runs_and_interim_reports_are_none() -> None:
    data = of({"x.json": result(job("a", 5), at=1) + "\n" + result(job("a", 6), at=20)})
    assert values(data, "read_bw") == [5, 6]
    data = real("interim.json")
    last = json.loads((DATA / "interim.json").read_text().split("\n}\n")[-2].lstrip("\n") + "\n}")
    assert values(data, "read_bw") == [last["jobs"][0]["read"]["bw"]]
    assert len(data.unread) == 3
    assert "interim" in data.unread[0]


def test_a_result_that_is_cut_off_is_named() -> None:
    data = of({"x.json": result(job("a", 5)) + "\n" + result(job("a", 6), at=9)[:-40]})
    assert values(data, "read_bw") == [5]
    assert "cut off" in data.unread[0]


def test_mixed_reads_and_writes_syncs_and_own_percentiles() -> None:
    assert len(values(real("unified.json"), "mixed_bw")) == 1
    own = real("own.json")
    raw = json.loads((DATA / "own.json").read_text())["jobs"][0]
    assert {o.response for o in own.observations if "_p" in o.response and o.response.startswith("write")} == {
        "write_clat_p50", "write_clat_p95", "write_clat_p99.5",
    }  # fmt: skip
    assert values(own, "sync_p99.5") == [raw["sync"]["lat_ns"]["percentile"]["99.500000"]]


def test_latencies_that_were_not_taken_are_no_zeros() -> None:
    data = real("gtod.json")
    assert not [one for one in data.observations if "lat" in one.response]
    assert any("gtod_reduce" in line for line in data.unread)


def test_a_number_that_is_none_is_named() -> None:
    data = of({"x.json": result({**job("a", 5), "read": {"bw": float("nan"), "iops": 3, "total_ios": 9}})})
    assert "x.json: job a: read_bw (nan)" in data.unread


def test_fio_2_counts_kib_and_microseconds() -> None:
    def clone(kib: int) -> dict[str, Any]:
        part = {
            "bw": 1,
            "io_bytes": kib,
            "iops": 1,
            "total_ios": 10,
            "runtime": 2000,
            "clat": {"mean": 7.0, "max": 9},
        }
        return {"jobname": "a", "groupid": 0, "error": 0, "write": part}

    text = json.dumps({"fio version": "fio-2.1.11", "jobs": [clone(4096), clone(8192)]}, indent=1)
    data = of({"x.json": text})
    assert values(data, "write_bw") == [(4096 + 8192) / 2]
    assert {(o.unit, o.value) for o in data.observations if o.response == "write_clat_mean"} == {("us", 7.0)}


def whole_job() -> dict[str, Any]:
    latency = {"min": 1, "max": 9, "mean": 5.0, "percentile": {"50.000000": 4, "99.000000": 9}}
    one = job("j", 5)
    one["read"] |= {"clat_ns": latency, "lat_ns": dict(latency)}
    one["sync"] = {"total_ios": 3, "lat_ns": dict(latency)}
    return one


def paths_of(block: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [(*above, key) for key in block]
    return found + [
        path for key in block if isinstance(block[key], dict) for path in paths_of(block[key], (*above, key))
    ]


#: without them the numbers are the same, or only the conditions
NO_NUMBERS = {"jobname", "groupid", "error", "min", "max", "io_bytes", "runtime"}


@pytest.mark.parametrize(
    "path", [path for path in paths_of(whole_job()) if path[-1] not in NO_NUMBERS], ids=".".join
)
def test_a_key_with_another_name_is_named(path: tuple[str, ...]) -> None:
    one = whole_job()
    block = one
    for key in path[:-1]:
        block = block[key]
    block[f"x{path[-1]}"] = block.pop(path[-1])
    assert of({"x.json": result(whole_job())}).unread == ()
    try:
        found = of({"x.json": result(one)})
    except RequestError:
        return
    if (without := of({"x.json": result(whole_job())})).observations != found.observations:
        assert len(found.observations) < len(without.observations)
    assert found.unread, found.observations


@pytest.mark.parametrize("printed", ["-nan", "nan", "inf", "-inf"])
def test_numbers_that_c_prints_as_nan_do_not_make_a_result_unreadable(printed: str) -> None:
    text = result(job("j", 5, description="slope: nan, or not")).replace(
        '"usr_cpu": 1.5', f'"slope": {printed}, "usr_cpu": 1.5'
    )
    data = of({"x.json": text})
    assert values(data, "read_bw") == [5]
    assert data.unread == ()
    assert picked(result_of(text), "jobs.j.read.bw") == 5
    assert result_of(text)["jobs"][0]["job options"]["description"] == "slope: nan, or not"
    absent = of({"x.json": text.replace('"bw": 5', f'"bw": {printed}')})
    assert values(absent, "read_bw") == []
    assert absent.unread == ("x.json: job j: read_bw (nan)",)
