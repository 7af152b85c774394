"""A neighbour of a workload: how a study declares it, its response, trust in its program, and what a run makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from iotrial.errors import StudyError
from iotrial.runner.work_server import numbers
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Study
from iotrial.study.neighbour import Neighbour
from iotrial.study.reader import read_study
from iotrial.study.trust import demands
from iotrial.study.work import LabContext

STUDY = """
[study]
name = "mode-and-writer"
question = "Does it matter?"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0777", "0444"]
[[factor]]
name = "amount"
knob = "command.argument"
placeholder = "{amount}"
levels = ["count=1", "count=2"]
[[workload]]
name = "w"
kind = "random"
direct = true
stall = "100 ms"
CACHE
[workload.neighbour]
NEIGHBOUR
"""
COPY = 'argv = ["dd", "if=/dev/zero", "of={neighbour}/x", "{amount}"]'


def study(neighbour: str = COPY, cache: str = "") -> Study:
    text = STUDY.replace("NEIGHBOUR", neighbour).replace("CACHE", cache)
    return read_study(text, "mode-and-writer", trusted=False)


@pytest.mark.parametrize(
    ("rounds", "name", "unit"), [("repeat", "neighbour_rate", "bytes/s"), ("once", "neighbour_time", "s")]
)
def test_it_has_one_response_which_is_not_slowed_down_by_the_control(
    rounds: str, name: str, unit: str
) -> None:
    found = study(f'{COPY}\nrounds = "{rounds}"')
    (response,) = [r for r in found.responses if r.name.startswith("neighbour")]
    assert (response.name, response.unit, response.stretchable, response.primary) == (
        name,
        unit,
        False,
        False,
    )


def test_it_is_stored_with_the_study_and_read_back() -> None:
    found = study(f'{COPY}\nlead_in = "250 ms"\nrounds = "once"\ntimeout = "1 min"')
    other = Neighbour(
        argv=("dd", "if=/dev/zero", "of={neighbour}/x", "{amount}"),
        rounds="once",
        lead_in_s=0.25,
        timeout_s=60.0,
    )
    assert found.workloads[0].neighbour == other
    again = study_from_json(study_to_json(found), foreign=True)
    assert again.workloads[0].neighbour == other


@pytest.mark.parametrize(
    ("neighbour", "cache", "words"),
    [
        ("", "", 'lacks "argv"'),
        ("argv = []", "", "cannot be empty"),
        ('argv = [" ", "{amount}"]', "", "names the program"),
        (f'{COPY}\nrounds = "twice"', "", "repeat"),
        (f'{COPY}\nspeed = 1', "", 'has no key "speed"'),
        (COPY, 'cache = "warm"', "cannot be checked while a neighbour reads"),
        ('argv = ["dd"]', "", "placeholder"),
    ],
)  # fmt: skip
def test_a_neighbour_that_cannot_be_is_refused_with_its_line(neighbour: str, cache: str, words: str) -> None:
    with pytest.raises(StudyError, match=words) as caught:
        study(neighbour, cache)
    assert caught.value.line is not None


def test_its_program_needs_trust_like_that_of_a_command() -> None:
    assert not demands(study())
    (wanted,) = demands(study('argv = ["sh", "-c", "dd {amount}"]'))
    assert wanted == 'the neighbour of workload "w" starts a shell (sh)'


def test_its_folder_the_files_and_the_values_of_levels_are_filled_in() -> None:
    other = Neighbour(
        argv=("cp", "{dir}/f000000", "{neighbour}/x", "{amount}", "{place.usb}/y"), rounds="once"
    )
    lab = LabContext(target=None, root="/lab", files="/lab/s0")  # type: ignore[arg-type]
    server = other.server(lab, {"{amount}": "count=2", "{place.usb}": "/usb/own"})
    assert server.argv == ("cp", "/lab/s0/f000000", "/lab/own/neighbour/x", "count=2", "/usb/own/y")
    assert (server.ready, server.rounds, server.cwd) == ({}, "once", "/lab/own/neighbour")


USED = {"cpu_ns": 5, "fetched_bytes": 3_000_000, "dirtied_bytes": 1_000_000}


def test_its_rate_is_what_it_moved_in_the_timed_part_and_its_time_that_of_its_round() -> None:
    answer: dict[str, Any] = {"servers": {"neighbour": USED}, "wall_ns": 2_000_000_000}
    assert Neighbour(argv=("dd",)).measured(answer) == {"neighbour_rate": 2_000_000.0}
    denied = {"servers": {"neighbour": {**USED, "fetched_bytes": None}}, "wall_ns": 1}
    assert Neighbour(argv=("dd",)).measured(denied) == {}
    once = {**answer, "neighbour": {"rounds_ns": [[1_000_000_000, 4_500_000_000]]}}
    assert Neighbour(argv=("dd",), rounds="once").measured(once) == {"neighbour_time": 3.5}


def test_what_it_used_is_not_counted_as_the_servers_of_the_work() -> None:
    assert numbers({"servers": {"neighbour": USED, "web": {"cpu_ns": 2_000_000_000}}}) == {"server_cpu": 2.0}


def test_the_share_of_stalls_is_that_of_the_operations_that_took_longer() -> None:
    work = study().workloads[0].work
    assert [r.name for r in work.responses() if r.name.endswith("stalls")] == ["read_stalls"]
    answer = {
        "operations": {
            "read": {
                "p50_ns": 1,
                "p99_ns": 1,
                "p999_ns": 1,
                "histogram": [[1_000_000, 6], [99_000_000, 1], [101_000_000, 2], [3_000_000_000, 1]],
            }
        },
        "wall_ns": 1_000_000_000,
        "spun": {"wall_ns": 0, "cpu_ns": 0},
    }
    from iotrial.study.work import JobContext

    assert work.measured(answer, JobContext()).numbers["read_stalls"] == pytest.approx(30.0)
