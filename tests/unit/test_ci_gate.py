"""The answers of a CI job: which benchmarks are slower at one error level, and how they are written."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from report_fixtures import CONDITIONS, document, effect

from iotrial.audits.benchmarks import benchmark_times
from iotrial.cli import main
from iotrial.cli.verbs.ci import status_of
from iotrial.errors import RequestError
from iotrial.report.gate import Gate, gate_of, gate_report, headline, junit
from iotrial.report.markdown import markdown
from iotrial.runner.build_study import Builds, study_text
from iotrial.stats.model import Verdict
from iotrial.study.reader import read_study
from iotrial.study.work import JobContext
from iotrial.workloads.command import CommandWork
from values import replace

CORPUS = Path(__file__).parents[1] / "data/audit/corpus"

SLOWER = (Verdict.SLOWER, 1.08, 1.06, 1.10)
FASTER = (Verdict.FASTER, 0.92, 0.90, 0.94)
SAME = (Verdict.EQUIVALENT, 1.001, 0.99, 1.01)
UNSURE = (Verdict.INCONCLUSIVE, 1.08, 0.99, 1.20)
BUDGET: dict[str, object] = {"reason": "budget_spent"}
OPEN = (Verdict.INCONCLUSIVE, 1.02, 0.98, 1.07)


def gate(
    *found: tuple[tuple[Verdict, float, float, float], float, dict[str, object]], valid: bool = True
) -> Gate:
    """A job of four benchmarks, with their effects and e-values; the alpha of its study is .05."""
    effects = [
        effect(*numbers, condition=condition, e_value=e_value, **more)
        for (numbers, e_value, more), condition in zip(found, CONDITIONS, strict=True)
    ]
    return gate_of(document(effects, valid=valid))


def answers(of: Gate) -> list[str]:
    return [one.answer.name for one in of.benchmarks]


def test_one_error_level_for_all_benchmarks() -> None:
    # four hypotheses at .05: one alone needs an e-value of 80; all four together a mean of 20 in every set
    alone = gate((UNSURE, 79.0, BUDGET), (OPEN, 0.0, {}), (OPEN, 0.0, {}), (OPEN, 0.0, {}))
    assert answers(alone) == ["OPEN"] * 4
    enough = gate((UNSURE, 81.0, BUDGET), (OPEN, 0.0, {}), (OPEN, 0.0, {}), (OPEN, 0.0, {}))
    assert answers(enough) == ["SLOWER", "OPEN", "OPEN", "OPEN"]
    together = gate(*[(UNSURE, 21.0, BUDGET)] * 4)
    assert answers(together) == ["SLOWER"] * 4
    # the trial's own verdict, by which it has stopped, counts as well
    stopped = gate((SLOWER, 60.0, {}), (FASTER, 1.0, {}), (OPEN, 0.0, {}), (OPEN, 0.0, {}))
    assert answers(stopped) == ["SLOWER", "FASTER", "OPEN", "OPEN"]
    assert stopped.alpha == 0.1  # half for each of both


def test_a_difference_within_the_margin_is_no_slowdown_and_a_doubtful_one_no_answer() -> None:
    found = gate(
        (SAME, 1e6, {"detectably": "slower"}),
        (FASTER, 1e6, {}),
        ((Verdict.INCONCLUSIVE, 1.08, 1.06, 1.10), 1e6, {"reason": "carry_over"}),
        (UNSURE, 1e6, BUDGET),
    )
    assert answers(found) == ["SAME", "FASTER", "OPEN", "SLOWER"]


@pytest.mark.parametrize(
    ("found", "valid", "status"),
    [
        ([(SAME, 1.0, {})] * 3 + [(FASTER, 1e6, {})], True, 0),
        ([(SAME, 1.0, {})] * 3 + [(OPEN, 1.0, {})], True, 6),
        ([(SLOWER, 1e6, {})] + [(OPEN, 1.0, {})] * 3, True, 4),
        ([(SLOWER, 1e6, {})] * 4, False, 3),
    ],
    ids=["no slowdown", "no answer for one", "a slowdown", "invalid"],
)
def test_each_outcome_has_its_exit_status(
    found: list[tuple[tuple[Verdict, float, float, float], float, dict[str, object]]],
    valid: bool,
    status: int,
) -> None:
    assert status_of(gate(*found, valid=valid)) == status


def test_a_failed_control_leaves_no_answer() -> None:
    found = gate(*[(SLOWER, 1e6, {})] * 4, valid=False)
    assert answers(found) == ["OPEN"] * 4
    assert "invalid" in headline(found)


def named(of: Gate, name: str) -> Gate:
    return replace(of, benchmarks=(replace(of.benchmarks[0], name=name), *of.benchmarks[1:]))


def test_the_xml_counts_its_cases_and_holds_any_name() -> None:
    name = 'sort<"&]]>\x1b[31m\x00'
    found = named(gate((SLOWER, 1e6, {}), (SAME, 1.0, {}), (FASTER, 1e6, {}), (OPEN, 1.0, {})), name)
    root = ElementTree.fromstring(junit(found))
    (suite,) = root
    cases = list(suite)
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped", "errors")} == {
        "tests": "4", "failures": "1", "skipped": "1", "errors": "0",
    }  # fmt: skip
    assert [[child.tag for child in case] for case in cases] == [
        ["failure"],
        ["system-out"],
        ["system-out"],
        ["skipped"],
    ]
    assert str(cases[0].get("name")).startswith('sort<"&]]>')
    assert "8 %" in str(cases[0][0].get("message")) or "8.0 %" in str(cases[0][0].get("message"))


def test_the_summary_escapes_names() -> None:
    found = named(gate(*[(SLOWER, 1e6, {})] * 4), "a|b](http://x)@all")
    text = markdown(gate_report(found, ["only in <b>head</b>"]))
    assert "b](" not in text
    assert "@all" not in text
    assert "<b>" not in text
    assert text.count("\n| a\\|b") == 1


# the study


def test_the_study_compares_two_builds_by_each_benchmark() -> None:
    names = ["sort/1 024", "sort/1-024", "ünï", "b" * 300]
    builds = Builds("./base --x", "./head --x", results="{out}/b.json", alpha=0.02, margin="2 %")
    study = read_study(study_text(builds, names), "here", trusted=True)
    (workload,) = study.workloads
    assert isinstance(workload.work, CommandWork)
    assert [one.benchmark for one in workload.work.outputs] == names
    primary = [one for one in study.responses if one.primary]
    assert len({one.name for one in primary}) == len(names) == len(primary)
    assert {one.unit for one in primary} == {"s"}
    assert (study.alpha, study.margin, study.quick) == (0.01, 0.02, True)
    (factor,) = study.factors
    assert [(level.label, level.settings[0].value) for level in factor.levels] == [
        ("base", "./base --x"), ("head", "./head --x"),
    ]  # fmt: skip
    assert factor.reference == "base"


def test_two_checkouts_run_one_command_each_in_its_folder() -> None:
    study = read_study(study_text(Builds("/a", "/b", ("make", "bench")), []), "here", trusted=True)
    work = study.workloads[0].work
    assert isinstance(work, CommandWork)
    job = work.probe_job(JobContext(arguments={"{build}": "/b"}))
    assert job["cwd"] == "/b"
    assert job["steps"] == [{"name": "command", "argv": ["make", "bench"]}]
    assert [one.name for one in study.responses if one.primary] == ["wall"]


def test_the_injected_slowdown_lengthens_the_times_of_benchmarks_as_it_did_the_run() -> None:
    study = read_study(study_text(Builds("a", "b"), ["BenchmarkX-2"]), "here", trusted=True)
    work = study.workloads[0].work
    printed = {"stdout": "BenchmarkX-2 \t 10 \t 200 ns/op\n", "stderr": "", "whole": True}
    plain = {
        "max_rss_bytes": 1, "out": None, "stragglers": 0, "failures": [], "wall_ns": 1_000_000,
        "steps": [{"name": "command", "printed": printed}], "kept_files": {},
    }  # fmt: skip
    # a spin of 10 % that took twice as long, since the processor was taken away meanwhile
    slowed = {**plain, "wall_ns": 1_200_000, "spun": {"wall_ns": 200_000, "cpu_ns": 100_000}}
    control = JobContext(slowdown=0.1)
    assert work.measured(plain, JobContext()).numbers["BenchmarkX-2"] == pytest.approx(200e-9)
    assert work.measured(slowed, control).numbers["BenchmarkX-2"] == pytest.approx(220e-9)
    # a slowdown that was not injected is not seen
    assert work.measured(plain, control).numbers["BenchmarkX-2"] == pytest.approx(200e-9)
    assert study.responses[0].stretchable


# what is read


def test_the_times_of_each_suite_are_in_seconds_by_benchmark() -> None:
    google = benchmark_times((CORPUS / "own-google-benchmark.json").read_text())
    assert google["BM_read/8"][0] == pytest.approx(12e-9)
    go = benchmark_times((CORPUS / "go.txt").read_text())
    assert go["example BenchmarkWrite-2"] == pytest.approx((757.9e-9, 720.5e-9, 741.5e-9))
    assert {len(times) for times in go.values()} == {3}
    hyperfine = benchmark_times((CORPUS / "hyperfine-two.json").read_text())
    assert len(hyperfine) == 2
    assert all(1e-4 < time < 60 for times in hyperfine.values() for time in times)
    assert "test_stat" in benchmark_times((CORPUS / "pytest-benchmark.json").read_text())


CRITERION = """\
Benchmarking sum: Analyzing
sum                     time:   [219.10 ns 220.50 ns 222.40 ns]
                        change: [-1.2% +0.1% +1.5%] (p = 0.81 > 0.05)
                        No change in performance detected.
a group with a long name/copy of a small buffer/4096
                        time:   [45.100 µs 46.000 µs 47.200 µs]
                        thrpt:  [80.100 MiB/s 84.900 MiB/s 86.600 MiB/s]
fast                    time:   [812.00 ps 820.00 ps 830.00 ps]
"""
MESSAGES = """\
{"reason":"group-complete","group_name":"g","benchmarks":["norm"],"report_directory":"r"}
{"reason":"benchmark-complete","id":"norm","report_directory":"r","iteration_count":[10,20],"measured_values":[500.0,1100.0],"unit":"ns"}
"""


def test_criterion_is_read_from_what_it_prints_and_from_its_messages() -> None:
    assert benchmark_times(CRITERION) == {
        "sum": pytest.approx((220.5e-9,)),
        "a group with a long name/copy of a small buffer/4096": pytest.approx((46e-6,)),
        "fast": pytest.approx((820e-12,)),
    }
    assert benchmark_times(MESSAGES) == {"norm": pytest.approx((50e-9, 55e-9))}


@pytest.mark.parametrize("text", ["", "hello", '{"benchmarks": []}', "1,2\n3,4\n"])
def test_what_no_suite_prints_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        benchmark_times(text)


# the command line


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr("sys.argv", ["iotrial", "ci", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--base", "true"), "--head"),
        (("--base", "/nowhere", "--head", "/nowhere", "--", "true"), "there is no such folder"),
        (("--base", "true", "--head", "true", "--results", "b.json"), "expected a file in {out}"),
        (("--base", "true", "--head", "true", "--results", "{out}/"), "no file is named"),
        (("--base", "true", "--head", "true", "--results", "{out}/b.json"), "has not written"),
        (("--base", "true", "--head", "true", "--time", "soon"), "--time"),
        (("--base", "true", "--head", "true", "--junit", "/nowhere/x.xml"), "no such folder"),
        (
            ("--base", "echo 'BenchmarkA 1 5 ns/op'", "--head", "echo 'BenchmarkB 1 5 ns/op'"),
            "no benchmark in common",
        ),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert says in refused(capsys, monkeypatch, *words)


def test_a_build_that_fails_leaves_no_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["iotrial", "ci", "--base", "true", "--head", "echo broken >&2; exit 3"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 6
    assert "head ended with status 3: broken" in capsys.readouterr().err
