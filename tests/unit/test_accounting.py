"""Accounted repetitions during a trial: jobs sent to the probe, effect of refusals and faults, time taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from accounting_fixtures import COMMAND, STUDY, Runs, Site, sites, study

from iotrial.cli.planned_changes import intent_lines
from iotrial.errors import NotSupported, ProbeError, TargetError
from iotrial.runner.resolve import resolve
from iotrial.runner.signals import Stopped
from iotrial.runner.trace_job import Counted, Lost, TraceCounts, accounts, counts_of, request_fields

CALLS, REQUESTS = frozenset({Counted.CALLS}), frozenset({Counted.REQUESTS})
BOTH = CALLS | REQUESTS


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    yield from sites(tmp_path)


def test_calls_of_commands_and_requests_where_the_lab_has_a_device() -> None:
    both = study(STUDY + COMMAND)
    assert accounts(both, "image") == {"read": REQUESTS, "cat": BOTH}
    assert accounts(both, "device") == {"read": REQUESTS, "cat": BOTH}
    assert accounts(both, "directory") == {"cat": CALLS}
    assert accounts(study(), "directory") == {}
    assert accounts(study(STUDY.replace("[study]", "[study]\naccount = false")), "image") == {}


def test_every_kind_of_work_is_accounted_where_there_is_a_device() -> None:
    kinds = {
        "files": 'operations = ["open", "read", "close"]',
        "stream": 'operation = "read"',
        "random": "operations = 10",
        "matrix": 'tests = ["write"]\nfile_size = "1 MiB"\nrecord_size = "4 KiB"',
        "calls": 'argv = ["cat", "{file}"]',
        "command": 'argv = ["cat", "{file}"]',
        "fio": 'job = "[x]\\nrw=read\\nsize=1m"\npick = [{ name = "x", path = "jobs.x.read.bw" }]',
    }
    for kind, keys in kinds.items():
        text = STUDY[: STUDY.index("[[workload]]")] + f'[[workload]]\nname = "w"\nkind = "{kind}"\n{keys}\n'
        found = accounts(study(text), "image")["w"]
        assert found == (BOTH if kind == "command" else REQUESTS), kind


def test_what_is_asked_of_the_probe_and_what_it_tells() -> None:
    assert request_fields(BOTH) == {"account": True, "account_requests": True}
    assert request_fields(REQUESTS) == {"account_requests": True}
    assert request_fields(CALLS) == {"account": True, "account_requests": False}
    answer = {
        "account": {"lost": 0, "calls": {"read": {}}},
        "requests": {"loop3": {"read": {}}, "loop4": {}},
    }
    assert counts_of(answer, BOTH, ["loop3"]) == TraceCounts({"read": {}}, {"read": {}})
    assert counts_of(answer, REQUESTS, ["loop4"]) == TraceCounts(None, {})
    with pytest.raises(ProbeError, match="requests: expected requests of loop5"):
        counts_of(answer, REQUESTS, ["loop5"])
    lost = {"account": {"lost": 2, "calls": {}}}
    with pytest.raises(ProbeError, match="2 events were lost"):
        counts_of(lost, CALLS, [])


@pytest.mark.parametrize("where", ["devices", "devices_in_sync"])
def test_fewer_requests_than_the_device_has_counted_are_not_all(where: str) -> None:
    def answer(seen: int) -> dict[str, Any]:
        counters = {"read_ios": 3, "write_ios": 0, "flush_ios": 2}
        requests = {"read": {"count": seen}, "flush": {"count": 2}}
        return {"devices": None, where: {"loop3": counters}, "requests": {"loop3": requests}}

    for seen in (3, 4):  # the trace may also see requests that precede the counters
        assert counts_of(answer(seen), REQUESTS, ["loop3"]).requests is not None
    with pytest.raises(Lost, match="loop3 counted 3 of kind read, of which 2 were seen"):
        counts_of(answer(2), REQUESTS, ["loop3"])


def test_a_repetition_that_lost_requests_is_done_again_twice_at_most(site: Callable[..., Site]) -> None:
    def lose(condition: str, _: frozenset[Counted]) -> None:
        own = [key for key, *_ in runs.calls if key == condition]
        if condition == unlucky or len(own) in (1, 2):
            raise Lost("2 of 3 were seen")

    here = site()
    unlucky, other = (condition.key for condition in here.plan.conditions)
    runs = Runs(lose)
    here.account(runs)
    assert [key for key, *_ in runs.calls].count(unlucky) == 3
    assert [key for key, *_ in runs.calls].count(other) == 6 + 2
    assert {one.condition for one in here.store.data(here.trial).requests} == {other}
    assert here.notes == [f"requests of {unlucky} were not counted: 2 of 3 were seen"]


def test_system_calls_are_kept_where_requests_are_lost(site: Callable[..., Site]) -> None:
    def lose(_: str, what: frozenset[Counted]) -> None:
        if Counted.REQUESTS in what:
            raise Lost("2 of 3 were seen")

    here = site(STUDY[: STUDY.index("[[workload]]")] + COMMAND)
    here.account(Runs(lose))
    data = here.store.data(here.trial)
    assert (len(data.calls), data.requests) == (12, ())
    assert set(here.notes) == {
        f"requests of {condition.key} were not counted: 2 of 3 were seen"
        for condition in here.plan.conditions
    }


def test_each_treatment_once_in_each_of_three_repetitions_and_no_control(site: Callable[..., Site]) -> None:
    here, runs = site(), Runs()
    here.account(runs)
    wanted = {
        (condition.key, arm, block, REQUESTS)
        for condition in here.plan.conditions
        for arm in ("0444", "0777")
        for block in (5, 6, 7)
    }
    assert len(runs.calls) == len(wanted) == 12
    assert set(runs.calls) == wanted
    found = here.store.data(here.trial).requests
    # the reads reported, and zero writes
    assert len(found) == 2 * 12
    assert {(one.kind, one.count, len(one.histogram)) for one in found} == {("read", 2, 1), ("write", 0, 0)}
    assert here.notes == []
    assert here.heard.said == ["counting requests of each arm in untimed repetitions"]


REPEATED = (
    STUDY
    + """
[design]
repeats = 3
[[factor]]
name = "kind"
knob = "filesystem.type"
levels = ["ext4", "xfs"]
plot = "whole"
"""
)


def test_an_arm_that_a_block_repeats_is_accounted_once(site: Callable[..., Site]) -> None:
    here, runs = site(REPEATED), Runs()
    condition = here.plan.conditions[0]
    planned = [run.arm.name for run in here.plan.block(condition, 5).runs]
    arms = {arm.name for arm in here.plan.treatments}
    assert len(arms) == 4
    assert all(planned.count(arm) == 3 for arm in arms)
    here.account(runs)
    assert {(key, arm, block) for key, arm, block, _ in runs.calls} == {
        (one.key, arm, block) for one in here.plan.conditions for arm in arms for block in (5, 6, 7)
    }
    assert len(runs.calls) == 2 * 4 * 3


def test_a_resumed_trial_does_not_account_again_what_it_has(site: Callable[..., Site]) -> None:
    here = site()

    def stop(_: str, __: frozenset[Counted]) -> None:
        if len(first.calls) == 5:
            raise Stopped(2)

    first, second = Runs(stop), Runs()
    with pytest.raises(Stopped):
        here.account(first)
    here.account(second)
    assert len(second.calls) == 12 - 4
    found = [one for one in here.store.data(here.trial).requests if one.kind == "read"]
    assert len({(one.condition, one.arm, one.repetition) for one in found}) == len(found) == 12


@pytest.mark.parametrize(
    ("refused", "left", "said"),
    [
        ({Counted.REQUESTS}, CALLS, ["requests were not counted: not permitted"]),
        ({Counted.CALLS}, REQUESTS, ["system calls were not counted: not permitted"]),
        (
            {Counted.CALLS, Counted.REQUESTS},
            frozenset(),
            ["system calls were not counted: not permitted", "requests were not counted: not permitted"],
        ),
        (set(), BOTH, []),
    ],
)
def test_what_the_kernel_refuses_is_left_out_and_the_other_counted(
    site: Callable[..., Site], refused: set[Counted], left: frozenset[Counted], said: list[str]
) -> None:
    def refuse(_: str, what: frozenset[Counted]) -> None:
        if refused & what:
            raise NotSupported("not permitted")

    here = site(STUDY[: STUDY.index("[[workload]]")] + COMMAND)
    runs = Runs(refuse)
    here.account(runs)
    assert here.notes == said
    assert here.heard.said[1:] == said
    tries = [what for _, _, _, what in runs.calls]
    assert tries.count(BOTH) == (1 if refused else 12)  # one refusal is enough to stop asking
    data = here.store.data(here.trial)
    assert len(data.calls) == (12 if Counted.CALLS in left else 0)
    assert len(data.requests) == (24 if Counted.REQUESTS in left else 0)


def test_a_condition_in_which_something_goes_wrong_is_given_up_and_the_others_go_on(
    site: Callable[..., Site],
) -> None:
    here = site()
    broken, sound = (condition.key for condition in here.plan.conditions)

    def fail(condition: str, _: frozenset[Counted]) -> None:
        if condition == broken:
            raise TargetError("no space left", errno=28)

    runs = Runs(fail)
    here.account(runs)
    assert [key for key, *_ in runs.calls].count(broken) == 1
    assert [key for key, *_ in runs.calls].count(sound) == 6
    assert here.notes == [f"requests of {broken} were not counted: no space left"]


def test_without_a_probe_it_ends_at_once(site: Callable[..., Site]) -> None:
    def die(*_: object) -> None:
        runs.alive = False
        raise ProbeError("the probe died")

    here, runs = site(), Runs(die)
    here.account(runs)
    assert len(runs.calls) == 1
    assert len(here.notes) == 1


def test_a_store_that_cannot_be_read_does_not_fail_the_trial(
    site: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, runs = site(), Runs()
    here.store.note(here.trial, "requests", "{}")
    here.account(runs)
    assert runs.calls == []
    assert len(here.notes) == 1
    assert "damaged record" in here.notes[0]


def plan_said(text: str, lab: str) -> str:
    resolved = resolve(study(text), root=lab != "directory", lab=lab)
    return " ".join(" ".join(intent_lines(resolved, "/x")).split())


def test_the_plan_says_what_will_be_counted() -> None:
    text = STUDY.replace('knob = "sysctl"\nkey = "vm.vfs_cache_pressure"\nlevels = ["50", "200"]', "")
    text = text[: text.index('[[factor]]\nname = "pressure"')] + text[text.index("[[workload]]") :]
    said = plan_said(text, "image")
    assert "accounted requests to the lab's device, in up to 3 untimed repetitions of each arm" in said
    assert "system calls" not in said
    assert "accounted" not in plan_said(text, "directory")
    with_command = plan_said(text + COMMAND, "directory")
    assert "system calls of cat" in with_command
    assert "accounted" not in plan_said(text.replace("[study]", "[study]\naccount = false"), "image")
