"""Hints lead on, never back to the refusal that gave them."""

from __future__ import annotations

import contextlib

import pytest

from iotrial.conduct.resolve import resolve
from iotrial.errors import IotrialError, MissingTool
from iotrial.study.catalogue import entries, find


@pytest.mark.parametrize("name", [entry.name for entry in entries()])
def test_the_directory_lab_that_a_hint_offers_serves_the_study(name: str) -> None:
    study = find(name)
    try:
        resolve(study, root=False, lab="image")
    except IotrialError as error:
        if "--lab directory" not in (error.hint or ""):
            return
    else:
        return
    with contextlib.suppress(MissingTool):  # says which program this machine lacks
        resolve(study, root=False, lab="directory")
