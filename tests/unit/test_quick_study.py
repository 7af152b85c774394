"""A command line becomes the text of a study: what it varies, what it runs, and clear errors for what cannot be one."""

from __future__ import annotations

from typing import Any

import pytest

from iotrial.errors import RequestError
from iotrial.runner import combinations
from iotrial.runner.quick_study import Printed, Replayed, Wish, left_out, study_text
from iotrial.study.model import Role, Study
from iotrial.study.reader import read_study
from iotrial.workloads.command import CommandWork

TAR = ("tar", "-cf", "/dev/null", ".")


def wish(*settings: str, commands: tuple[tuple[str, ...], ...] = (TAR,), **more: object) -> Wish:
    return Wish(settings=settings, parameters=more.pop("parameters", ()), commands=commands, **more)  # type: ignore[arg-type]


def study_of(given: Wish) -> Study:
    return read_study(study_text(given), "the command line", trusted=True)


def work_of(study: Study) -> CommandWork:
    work = study.workloads[0].work
    assert isinstance(work, CommandWork)
    return work


@pytest.mark.parametrize(
    ("setting", "knob", "options", "name"),
    [
        ("block.scheduler=none,bfq", "block.scheduler", (), "scheduler"),
        ("scheduler=none,bfq", "block.scheduler", (), "scheduler"),
        ("vm.swappiness=10,60", "sysctl", (("key", "vm.swappiness"),), "swappiness"),
        ("sysctl.vm.swappiness=10,60", "sysctl", (("key", "vm.swappiness"),), "swappiness"),
        ("swappiness=10,60", "sysctl", (("key", "vm.swappiness"),), "swappiness"),
        (
            "env.MALLOC_ARENA_MAX=1,4",
            "environment.variable",
            (("variable", "MALLOC_ARENA_MAX"),),
            "MALLOC_ARENA_MAX",
        ),
        ("mount.option=default,commit=30", "mount.option", (), "option"),
    ],
)
def test_a_setting_becomes_a_factor(setting: str, knob: str, options: tuple[object, ...], name: str) -> None:
    (factor,) = study_of(wish(setting)).factors
    assert factor.name == name
    assert factor.role is Role.TREATMENT
    values = setting.partition("=")[2].split(",")
    assert [level.settings[0].value for level in factor.levels] == values
    assert factor.reference == values[0]
    for level in factor.levels:
        assert (level.settings[0].knob, level.settings[0].options) == (knob, options)


@pytest.mark.parametrize(
    "asked",
    [
        {"parameters": (("to", "{out}/a,b"),), "commands": (("cp", "x", "{to}"),)},
        {"commands": (("cp", "x", "{out}"), ("dd of={out}/a",))},
    ],
)
def test_a_level_that_names_the_folder_for_output_gets_one(asked: dict[str, Any]) -> None:
    (workload,) = study_of(wish(**asked)).workloads
    assert workload.work.needs_scratch()
    study = study_text(wish(**asked)).replace("output_folder = true\n", "")
    with pytest.raises(RequestError, match=r"a level has \{out\}, and the workload has no output folder"):
        read_study(study, "a study", trusted=True)


def test_levels_of_several_settings_name_every_knob() -> None:
    given = wish(levels=("a: vm.swappiness=1 scheduler=none", "b: vm.swappiness=2"))
    (factor,) = study_of(given).factors
    assert [[s.value for s in level.settings] for level in factor.levels] == [["1", "none"], ["2", "today"]]
    (factor,) = study_of(wish(levels=("a: vm.swappiness=1",))).factors
    assert factor.reference == "today"


def test_combinations_that_exclude_each_other_are_left_out_and_the_others_compared() -> None:
    given = wish("vm.dirty_ratio=20,50", "vm.dirty_background_ratio=10,30", "env.A=1,2")
    study = study_of(given)
    other, settings = study.factors
    assert other.name == "A"
    values = [tuple(s.value for s in level.settings) for level in settings.levels]
    assert values == [("20", "10"), ("50", "10"), ("50", "30")]
    assert settings.reference == "dirty_ratio=20 dirty_background_ratio=10"
    assert left_out(given) == (
        "dirty_ratio=20 dirty_background_ratio=30 is left out: the kernel then silently uses half of vm.dirty_ratio instead",
    )
    combinations.check(study)


def test_combinations_that_are_all_possible_stay_crossed() -> None:
    given = wish("vm.dirty_ratio=20,50", "vm.dirty_background_ratio=5,10")
    assert [factor.name for factor in study_of(given).factors] == ["dirty_ratio", "dirty_background_ratio"]
    assert left_out(given) == ()


def test_one_level_is_fixed_for_all_runs() -> None:
    study = study_of(wish("scheduler=none", "read_ahead_kb=16,512"))
    assert [factor.role for factor in study.factors] == [Role.CONDITION, Role.TREATMENT]


def test_the_command_is_started_as_it_was_typed() -> None:
    study = study_of(wish("scheduler=none,bfq", cache="warm"))
    assert work_of(study).steps[0].argv == TAR
    assert study.lab.kind == "in-place"
    assert study.workloads[0].cache == "warm"
    assert study.trusted


@pytest.mark.parametrize(("lab", "state"), [("in-place", "cold-data"), ("image", "cold")])
def test_cold_in_place_is_called_what_it_is(lab: str, state: str) -> None:
    study = study_of(wish("scheduler=none,bfq", cache="cold", lab=lab))
    assert study.workloads[0].cache == state


@pytest.mark.parametrize(
    ("command", "shell", "argv"),
    [
        (("cat a | wc -c",), None, ("sh", "-c", "cat a | wc -c")),
        (("cat",), None, ("cat",)),
        (("cat", "a b"), "bash", ("bash", "-c", "cat 'a b'")),
        (("cat a; true",), "dash", ("dash", "-c", "cat a; true")),
    ],
)
def test_one_word_with_blanks_is_a_line_for_the_shell(
    command: tuple[str, ...], shell: str | None, argv: tuple[str, ...]
) -> None:
    assert (
        work_of(study_of(wish("scheduler=none,bfq", commands=(command,), shell=shell))).steps[0].argv == argv
    )


def test_several_commands_are_levels_of_one_factor() -> None:
    study = study_of(wish(commands=(("gzip", "-k", "a, b"), ("xz -k 'a, b'",))))
    (factor,) = study.factors
    assert factor.name == "command"
    assert [level.settings[0].value for level in factor.levels] == ["gzip -k 'a, b'", "xz -k 'a, b'"]
    assert work_of(study).steps[0].argv == ("sh", "-c", "{command}")


def test_a_parameter_stands_in_the_command() -> None:
    study = study_of(wish(commands=(("gzip", "-{level}"),), parameters=(("level", "1,9,a+b,a b"),)))
    (factor,) = study.factors
    assert [level.settings[0].value for level in factor.levels] == ["1", "9", "a+b", "a b"]
    assert len({level.label for level in factor.levels}) == 4


def test_what_the_command_prints_becomes_responses() -> None:
    printed = (
        Printed("tps", "regex", r"tps = ([0-9.]+)", "1/s", "higher"),
        Printed("p99", "json", "latency.p99", "ms"),
    )
    study = study_of(wish("scheduler=none,bfq", printed=printed))
    tps, p99 = study.responses[:2]
    assert (tps.name, tps.unit, tps.better.value, tps.primary) == ("tps", "1/s", "higher", True)
    assert (p99.name, p99.unit) == ("p99", "s")


def test_lines_before_and_after_run_in_a_shell() -> None:
    work = work_of(study_of(wish("scheduler=none,bfq", prepare="rm -f x", cleanup="sync")))
    assert work.prepare == ("sh", "-c", "rm -f x")
    assert work.cleanup == ("sh", "-c", "sync")


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        (wish("scheduler=none,bfq", commands=()), "no command given", "two dashes"),
        (wish("scheduler"), "expected KNOB=LEVEL", "after --"),
        (wish("scheduler=none,,bfq"), "empty", ""),
        (wish("scheduler=none,none"), "given twice", ""),
        (wish("scheduler=none"), "nothing to compare", "commas"),
        (wish(), "nothing to compare", ""),
        (wish("schedular=none,bfq"), "schedular", "scheduler"),
        (wish("scheduler=none,bfq", "block.scheduler=kyber,bfq"), "given twice", "commas"),
        (wish(parameters=(("n", "1,2"),)), "{n} is not in the command", "{n}"),
        (
            wish("env.A=1,2", commands=(), replay=Replayed("a", "/", "0" * 64)),
            "env.A: a replay starts no",
            "",
        ),
    ],
)
def test_what_cannot_be_a_study_is_refused_with_a_hint(given: Wish, message: str, hint: str) -> None:
    with pytest.raises(RequestError) as caught:
        study_text(given)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("word", ["'; rm -rf / #", 'a"b\\c', "tab\there", "é 𝒳", "]]\n[x]"])
def test_any_word_survives_the_way_through_the_file(word: str) -> None:
    study = study_of(wish(commands=(("echo", word, "{n}"),), parameters=(("n", "1,2"),)))
    assert work_of(study).steps[0].argv == ("echo", word, "{n}")
