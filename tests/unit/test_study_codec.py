"""Studies to JSON and back: nothing is lost, and damage is reported."""

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
from iotrial.workloads.files import FilesWork
from values import replace


def _round_trip(study: model.Study) -> model.Study:
    return study_from_json(json.loads(json.dumps(study_to_json(study))))


def test_a_study_comes_back_from_json_as_it_was() -> None:
    for study in (whole(), select(whole()), select(whole(), full=True)):
        assert _round_trip(study) == study
        assert hash(_round_trip(study).factors) == hash(study.factors)


_line = st.text(st.characters(categories=("L", "N", "P", "S"), include_characters=" "), max_size=20)
_lines = st.lists(_line, max_size=3).map(tuple)


@st.composite
def _studies(draw: st.DrawFn) -> model.Study:
    """Draw the study that uses every feature, with values from the whole range of their limits."""
    study = whole()
    probe, *others = study.workloads
    assert isinstance(probe.work, FilesWork)
    work = replace(
        probe.work,
        files=draw(st.integers(1, 10**6)),
        pool=0,
        size_bytes=draw(st.integers(0, 1 << 44)),
        buffer_bytes=draw(st.integers(1, 1 << 30)),
        contiguous=draw(st.booleans()),
    )
    claims = tuple(
        replace(claim, note=draw(_line), cannot=draw(_line), text=f"x{draw(_line)}") for claim in study.claims
    )
    return replace(
        study,
        title=draw(_line),
        question=draw(_line),
        why="\n\t".join(draw(_lines)),
        margin=draw(st.floats(1e-9, 1.0)),
        alpha=draw(st.floats(1e-9, 0.5)),
        lab=replace(
            study.lab,
            size_bytes=draw(st.integers(1 << 20, 16 << 40)),
            mkfs_options=draw(_lines),
            disks=draw(st.integers(1, 16)),
        ),
        budget=model.Budget(draw(st.floats(1e-9, 30 * 86400.0)), draw(st.integers(1, 10**6))),
        workloads=(replace(probe, work=work), *others),
        claims=claims,
        text=draw(_line),
        origin=draw(_line),
        trusted=draw(st.booleans()),
        account=draw(st.booleans()),
    )


@pytest.mark.slow
@settings(deadline=None)
@given(_studies())
def test_any_study_comes_back_from_json_as_it_was(study: model.Study) -> None:
    assert _round_trip(study) == study


def test_a_newer_schema_is_refused_with_what_to_do() -> None:
    data = study_to_json(whole())
    newer = int(str(data["schema"])) + 1
    data = {**data, "schema": newer}
    with pytest.raises(StudyError, match=f"schema {newer}") as caught:
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
