"""Program output as responses and facts: how a value is found, which of several counts, and refusals."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from iotrial.errors import RequestError, StudyError
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.reader import read_study
from iotrial.study.scales import Better, Scale
from iotrial.study.schema import Problem
from iotrial.study.work import JobContext, work_of
from iotrial.workloads.command import CommandWork
from iotrial.workloads.output import documents_in, numbers_and_facts, values_at


def work(**fields: Any) -> CommandWork:
    table = {"argv": ["bench"], "output": [{"name": "rate", "unit": "MB/s", **fields}]}
    return work_of(CommandWork, table)


def answer(stdout: str = "", stderr: str = "", *, files: Any = None, whole: bool = True) -> dict[str, Any]:
    printed = {"stdout": stdout, "stderr": stderr, "whole": whole}
    return {"steps": [{"name": "command", "printed": printed}], "kept_files": files or {}}


def found(text: str, **fields: Any) -> float:
    numbers, _ = numbers_and_facts(work(**fields).outputs, answer(text))
    return numbers["rate"]


def test_a_number_in_json_is_found_by_its_path_and_becomes_a_unit_of_reports() -> None:
    text = 'warming up {not json}\n{"results": [{"mean": 3.5}, {"mean": 4}], "99.9": {"x": 7}}\nbye'
    assert found(text, json="results.0.mean") == 3.5e6
    assert found(text, json="results.1.mean") == 4e6
    assert found(text, json="99.9.x") == 7e6  # a name with a dot in it
    spec = work(json="x").outputs[0].spec
    assert (spec.unit, spec.scale, spec.better) == ("bytes/s", Scale.LOG, Better.HIGHER)
    assert not spec.stretchable


def test_of_several_values_what_is_asked_for_counts() -> None:
    lines = "".join(f"took {n} ms\n" for n in (4, 1, 3, 2, 10))
    wanted = {
        "first": 4, "last": 10, "sum": 20, "mean": 4, "median": 3, "p90": 10, "p99": 10, "min": 1, "max": 10,
    }  # fmt: skip
    for take, value in wanted.items():
        assert found(lines, regex="took ([0-9]+) ms", take=take, unit="ms") == pytest.approx(value / 1000)
    assert found(lines, regex="(took)", take="count", unit="ms") == 5
    assert found("fine", regex="(error)", take="count", scale="difference") == 0
    with pytest.raises(RequestError, match="expected one value, found 5"):
        found(lines, regex="took ([0-9]+) ms")


@pytest.mark.parametrize(
    ("text", "fields", "says"),
    [
        ("", {"json": "a"}, "expected JSON in stdout"),
        ('{"b": {"aa": 1}}', {"json": "b.a"}, "no b.a in the JSON"),
        ('{"a": "many"}', {"json": "a"}, "expected a number, found 'many'"),
        ('{"a": [1]}', {"json": "a"}, "expected a number"),
        ('{"a": NaN}', {"json": "a"}, "expected a number"),
        ('{"a": 0}', {"json": "a"}, "a ratio needs numbers above 0"),
        ("nothing", {"regex": "rate=([0-9]+)"}, "nothing in stdout matches"),
    ],
)
def test_a_value_that_is_not_there_or_is_no_number_is_told(
    text: str, fields: dict[str, str], says: str
) -> None:
    with pytest.raises(RequestError) as caught:
        found(text, **fields)
    assert 'output "rate"' in caught.value.message
    assert says in caught.value.message


def test_the_nearest_paths_are_named() -> None:
    with pytest.raises(RequestError) as caught:
        found('{"b": {"aa": 1}}', json="b.a")
    assert caught.value.hint == "similar: b.aa"


def test_more_than_is_kept_is_no_value() -> None:
    with pytest.raises(RequestError, match="more than 8 MiB"):
        numbers_and_facts(work(regex="(1)", take="first").outputs, answer("1", whole=False))


def test_a_file_that_was_written_is_read_and_one_that_was_not_is_told() -> None:
    made = work(**{"from": "{out}/deep/result.json", "json": "a"})
    assert made.needs_scratch()
    assert made.probe_job(JobContext())["keep_files"] == ["deep/result.json"]
    text = {"text": '{"a": 2}', "whole": True}
    assert numbers_and_facts(made.outputs, answer(files={"deep/result.json": text}))[0] == {"rate": 2e6}
    with pytest.raises(RequestError, match="no file"):
        numbers_and_facts(made.outputs, answer(files={"deep/result.json": None}))


def test_facts_are_words_and_an_object_is_a_fact_an_entry() -> None:
    made = work(json="calls", fact=True)
    _, facts = numbers_and_facts(made.outputs, answer('{"calls": {"read": "once", "stat": false, "n": 3}}'))
    assert facts == {"read": "once", "stat": "false", "n": "3"}
    assert next(spec.name for spec in made.responses()) == "wall"
    with pytest.raises(RequestError, match="found a list or an object"):
        numbers_and_facts(made.outputs, answer('{"calls": {"read": [1]}}'))


def test_a_failed_command_has_failed_for_that_and_its_output_is_not_looked_for() -> None:
    told = {
        **answer("no number"),
        "max_rss_bytes": 1,
        "out": None,
        "stragglers": 0,
        "failures": [{"exit": 1}],
    }
    assert work(regex="rate ([0-9]+)").measured(told, JobContext()).missing is None
    told["failures"] = []
    assert "nothing in stdout matches" in str(
        work(regex="rate ([0-9]+)").measured(told, JobContext()).missing
    )


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "one of json, regex and benchmark, found none"),
        ({"json": "a", "regex": "(a)"}, "one of json, regex and benchmark, found json and regex"),
        ({"benchmark": "b", "unit": "ms"}, "a ratio in s"),
        ({"regex": "a"}, "expected one group"),
        ({"regex": "(a)(b)"}, "expected one group"),
        ({"regex": "(a"}, "not a regular expression"),
        ({"json": "a", "from": "/etc/passwd"}, 'expected "stdout", "stderr" or'),
        ({"json": "a", "from": "{out}/../x"}, 'expected "stdout", "stderr" or'),
        ({"json": "a", "from": "{out}/"}, 'expected "stdout", "stderr" or'),
        ({"json": "a", "step": "load"}, 'no step is called "load"'),
        ({"json": "a", "name": "wall"}, 'response "wall" is given twice'),
        ({"json": "a", "fact": True, "take": "sum"}, "a fact is a word"),
        ({"json": "a", "take": "some"}, 'expected "only"'),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(Problem) as caught:
        work(**fields)
    assert says in caught.value.message


def test_with_several_steps_it_is_said_which_one_prints() -> None:
    steps = [{"name": "a", "argv": ["a"]}, {"name": "b", "argv": ["b"]}]
    with pytest.raises(Problem, match="the step that"):
        work_of(CommandWork, {"step": steps, "output": [{"name": "x", "json": "x"}]})
    made = work_of(CommandWork, {"step": steps, "output": [{"name": "x", "json": "x", "step": "b"}]})
    printed = [
        {"name": name, "printed": {"stdout": f'{{"x": {number}}}', "stderr": "", "whole": True}}
        for name, number in (("a", 1), ("b", 2))
    ]
    assert numbers_and_facts(made.outputs, {"steps": printed, "kept_files": {}})[0] == {"x": 2.0}


def test_json_that_nests_without_end_is_passed_over() -> None:
    assert list(documents_in("[" * 5000)) == []
    assert list(documents_in("[1," * 1200 + '{"a": 1}')) == [{"a": 1}]
    assert list(values_at([[1]], "0.0")) == [1]
    assert list(values_at([[1]], "0.7")) == []


@pytest.mark.parametrize("unit", ["[", "{", '{"a":', "[1,", "[[],", '[{"a":1},', '["a",'])
def test_brackets_that_are_never_closed_end_with_a_reason(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iotrial.workloads.output.MOST_CPU_S", 0.3)
    began = time.process_time()
    with pytest.raises(RequestError, match=r"brackets|expected JSON|no b in|expected one"):
        found(unit * ((8 << 20) // len(unit)), json="b")
    assert time.process_time() - began < 15


def test_json_is_found_after_any_amount_of_text() -> None:
    lines = "".join(f"[12:00:{n % 60}] [INFO] {{worker {n}}} done\n" for n in range(20_000))
    assert found(lines + '{"a": 3}' + lines, json="a", unit="1") == 3


def test_a_missing_path_in_a_large_document_is_told_in_time() -> None:
    nested: Any = {f"leaf{n}": n for n in range(20_000)}
    for _ in range(300):
        nested = {"n" * 2000: nested}
    wide = {f"{'w' * 90}{n}": n for n in range(50_000)}
    for document in (nested, wide):
        began = time.process_time()
        with pytest.raises(RequestError, match="no missing in the JSON") as caught:
            found(json.dumps(document), json="missing")
        assert len(caught.value.hint or "") < 1000
        assert time.process_time() - began < 10


STUDY = """
[study]
name = "own"
question = "?"
[[factor]]
name = "way"
knob = "command.argument"
placeholder = "{way}"
levels = ["a", "b"]
[[workload]]
name = "w"
kind = "command"
argv = ["bench", "{way}"]
[[workload.output]]
name = "rate"
regex = 'rate ([0-9]+)'
unit = "MiB/s"
"""


def test_what_is_printed_is_the_primary_response_and_survives_storing() -> None:
    study = read_study(STUDY, "own.toml", trusted=False)
    assert [r.name for r in study.responses if r.primary] == ["rate"]
    stored = json.loads(json.dumps(study_to_json(study)))
    again = study_from_json(stored, foreign=True)
    assert again == study
    stored["study"]["workloads"][0]["work"]["outputs"][0]["regex"] = "(a)(b)"
    with pytest.raises(StudyError, match="expected one group"):
        study_from_json(stored, foreign=True)


def test_an_error_names_file_and_line() -> None:
    with pytest.raises(StudyError) as caught:
        read_study(STUDY.replace("([0-9]+)", "[0-9]+"), "own.toml", trusted=False)
    assert str(caught.value).startswith("own.toml:16")


@pytest.mark.parametrize("kind", ["pages", "clients", "atime"])
def test_a_kind_that_is_gone_is_refused_with_what_to_use_instead(kind: str) -> None:
    with pytest.raises(StudyError) as caught:
        read_study(STUDY.replace('kind = "command"', f'kind = "{kind}"'), "own.toml", trusted=False)
    assert f'kind "{kind}" is not supported any more' in caught.value.message
    assert "use kind = " in str(caught.value.hint)
