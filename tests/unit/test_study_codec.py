"""Studies through JSON and back: nothing is lost, and what is damaged says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from study_examples import whole

from iotrial.errors import StudyError
from iotrial.study import model
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.select import select


def _round_trip(study: model.Study) -> model.Study:
    return study_from_json(json.loads(json.dumps(study_to_json(study))))


def test_a_study_comes_back_from_json_as_it_was() -> None:
    for study in (whole(), select(whole()), select(whole(), full=True)):
        assert _round_trip(study) == study
        assert hash(_round_trip(study).factors) == hash(study.factors)


_text = st.text(max_size=10)
_options = st.lists(st.tuples(_text, _text), max_size=2).map(tuple)
_setting = st.builds(model.Setting, _text, _text, _options)
_level = st.builds(model.Level, _text, st.lists(_setting, max_size=2).map(tuple))
_texts = st.lists(_text, max_size=3).map(tuple)
_number = st.floats(allow_nan=False, allow_infinity=False)
_count = st.integers(0, 2**63)
_factor = st.builds(
    model.Factor,
    _text,
    st.sampled_from(model.Role),
    st.lists(_level, max_size=3).map(tuple),
    _text,
    _texts,
    st.none() | _count,
)
_steps = st.lists(st.builds(model.Step, _text, _texts), max_size=2).map(tuple)
_work = st.one_of(
    st.builds(model.FilesWork, _texts, files=_count, size_bytes=_count),
    st.builds(model.CommandWork, _steps, timeout_s=_number, environment=_options, stdin=_text),
)
_workload = st.builds(
    model.Workload,
    _text,
    _text,
    _work,
    st.none() | _text,
    st.dictionaries(_text, _texts, max_size=2),
    st.booleans(),
)
_response = st.builds(
    model.Response,
    _text,
    _text,
    _text,
    st.sampled_from(model.Scale),
    st.sampled_from(model.Better),
    st.booleans(),
)
_claim = st.builds(
    model.Claim,
    _text,
    _text,
    _text,
    _text,
    _text,
    st.none() | _number,
    condition=st.dictionaries(_text, _text, max_size=2),
    needs=st.dictionaries(_text, st.lists(_text, max_size=2).map(tuple), max_size=2),
    cannot=_text,
)


def _some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=2).map(tuple)


_study = st.builds(
    model.Study,
    *(_text, _text, _text, _text, _number, _number),
    st.builds(model.LabSpec, st.none() | _text, _text, _count, _texts, _texts),
    st.builds(model.Budget, _number, _count),
    *(_some(_factor), _some(_setting), _some(_workload), _some(_response), _some(_claim)),
    *(_text, _text, st.booleans()),
)


@pytest.mark.slow
@settings(deadline=None)
@given(_study)
def test_any_study_comes_back_from_json_as_it_was(study: model.Study) -> None:
    assert _round_trip(study) == study


def test_a_newer_schema_is_refused_with_what_to_do() -> None:
    data = study_to_json(whole()) | {"schema": 99}
    with pytest.raises(StudyError, match="schema 99") as caught:
        study_from_json(data, origin="trial 7")
    assert caught.value.message.startswith("trial 7: ")
    assert "update" in (caught.value.hint or "")


def test_fields_that_came_later_may_be_missing() -> None:
    data = json.loads(json.dumps(study_to_json(whole())))
    del data["study"]["trusted"]
    del data["study"]["workloads"][1]["work"]["reads"]
    assert study_from_json(data) == whole()


_paths = st.lists(st.integers(0, 20), min_size=1, max_size=6)
_junk = st.sampled_from([None, 1, -1.5, True, "x", [], {}, [1], {"is": "Study"}, {"is": "FilesWork"}])


@pytest.mark.slow
@settings(deadline=None)
@given(_paths, _junk)
def test_damage_anywhere_is_a_study_error_or_still_a_study(path: list[int], junk: object) -> None:
    data: Any = json.loads(json.dumps(study_to_json(whole())))
    inner = data
    for step in path:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if not keys:
            break
        key = keys[step % len(keys)]
        if not isinstance(inner[key], dict | list) or step == path[-1]:
            inner[key] = junk
            break
        inner = inner[key]
    try:
        assert isinstance(study_from_json(data), model.Study)
    except StudyError as error:
        assert "stored study" in str(error)  # noqa: PT017  either outcome is right, nothing else is


@pytest.mark.parametrize(
    "data", [None, [], "x", {}, {"schema": "1"}, {"schema": 1}, {"schema": 1, "study": {"extra": 1}}]
)
def test_what_is_no_study_is_refused(data: object) -> None:
    with pytest.raises(StudyError):
        study_from_json(data)
