"""The options of ``iotrial run`` and ``plan`` as a request."""

from __future__ import annotations

import pytest

from iotrial.cli.run_request import RunRequest, find_study, request_of, sampling_period
from iotrial.errors import RequestError


def test_what_is_left_out_is_done() -> None:
    assert request_of({}) == RunRequest()
    for name in ("controls", "account", "check"):
        assert getattr(request_of({}), name)
        assert not getattr(request_of({f"no_{name}": True}), name)


def test_levels_are_collected_by_factor_and_all_named_factors_are_kept() -> None:
    found = request_of({"sets": ("size=4KiB, 1MiB", "size=8KiB", "mode=0644"), "conditions": ("cache=warm",)})
    assert found.sets == {"size": ["4KiB", "1MiB", "8KiB"], "mode": ["0644"]}
    assert found.conditions == {"cache": ["warm"]}
    assert found.named == ("cache", "mode", "size")


def test_a_factor_has_one_reference() -> None:
    found = request_of({"references": ("mode=wal full", "size=4KiB")})
    assert found.references == {"mode": "wal full", "size": "4KiB"}
    assert found.named == ("mode", "size")
    with pytest.raises(RequestError, match='factor "mode" is given twice'):
        request_of({"references": ("mode=wal full", "mode=wal normal")})
    with pytest.raises(RequestError, match="expected NAME=LEVEL"):
        request_of({"references": ("mode",)})


def test_a_sampling_period_has_bounds() -> None:
    assert (sampling_period(None), sampling_period("10 ms"), sampling_period("1 min")) == (None, 0.01, 60.0)
    for text in ("9 ms", "61 s"):
        with pytest.raises(RequestError, match="expected 10 ms to 1 min"):
            sampling_period(text)


def test_a_shipped_study_that_is_called_foreign_is_not_trusted() -> None:
    assert find_study("files/permissions", RunRequest())[0].trusted
    assert not find_study("files/permissions", RunRequest(foreign=True))[0].trusted
