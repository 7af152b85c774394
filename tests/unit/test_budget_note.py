"""What a trial says after its first block if the time is too short: how long it takes, or how many levels fit."""

from __future__ import annotations

import re

from factorial_trials import conducted

from iotrial.cli.run_request import request_of
from iotrial.design.plan import Plan
from iotrial.runner.budget_note import budget_note, fewer_levels
from iotrial.runner.quick_study import Wish, setting_of, study_text
from iotrial.stats.analyse import Spec
from iotrial.study.reader import read_study
from iotrial.study.select import with_levels
from iotrial.units import parse_duration

SEED = "00112233445566778899aabbccddeeff"


def note_of(setting: str, *, rounds: int, round_s: float = 20.0, spent_s: float = 30.0) -> str | None:
    text = study_text(Wish(settings=(setting,), parameters=(), commands=(("true",),)))
    plan = Plan(read_study(text, "the command line", trusted=True), SEED)
    return budget_note(plan, Spec.from_plan(plan), rounds=rounds, round_s=round_s, spent_s=spent_s)


def test_enough_time_needs_no_note() -> None:
    assert note_of("vm.swappiness=10,60,90,100", rounds=30) is None


def test_the_time_to_give_is_enough() -> None:
    note = note_of("vm.swappiness=10,60,90,100", rounds=3)
    assert note is not None
    assert note.startswith("3 blocks of 20 s fit into the time")
    found = re.search(r"takes at least (\d+): give --time (\S+)$", note)
    assert found is not None, note  # no two levels fit into three blocks
    assert parse_duration(found[2]) >= 30.0 + (int(found[1]) - 1) * 20.0


def test_fewer_levels_that_fit_are_named_as_the_command_line_takes_them() -> None:
    note = note_of("vm.swappiness=10,60,90,100", rounds=5)
    assert note is not None
    found = re.search(r"or --fewer: (\S+) first$", note)
    assert found is not None, note
    fewer = setting_of(found[1])
    assert fewer.values == ("10", "60", "90", "100")[: len(fewer.values)]
    # a block of fewer levels is shorter, in proportion to its runs: six become four or five, with two controls
    assert note_of(found[1], rounds=5 * 6 // (2 + len(fewer.values))) is None


def test_two_levels_can_only_have_more_time() -> None:
    note = note_of("vm.swappiness=10,60", rounds=2)
    assert note is not None
    assert "fewer" not in note


def test_of_several_settings_what_was_named_first_is_kept_and_the_rest_held_at_the_reference() -> None:
    text = study_text(
        Wish(
            settings=("vm.swappiness=10,60,90", "vm.vfs_cache_pressure=50,100"),
            parameters=(),
            commands=(("true",),),
        )
    )
    study = read_study(text, "the command line", trusted=True)
    plan = Plan(study, SEED)
    spec = Spec.from_plan(plan)
    found = fewer_levels(plan, spec, 5)
    assert found is not None
    assert found == {"swappiness": ("10", "60"), "vfs_cache_pressure": ("50",)}
    less = with_levels(study, found, time_s=60.0)
    assert [(f.name, f.default) for f in less.treatment_factors] == [("swappiness", ("10", "60"))]
    assert [(one.value, dict(one.options)) for one in less.fixed] == [
        ("50", {"key": "vm.vfs_cache_pressure"})
    ]
    fitting = Spec.from_plan(shorter := Plan(less, SEED))
    runs, fewer_runs = (len(one.block(one.conditions[0], 0).runs) for one in (plan, shorter))
    assert budget_note(shorter, fitting, round_s=1.0, rounds=5 * runs // fewer_runs, spent_s=0.0) is None
    assert fewer_levels(plan, spec, 2) is None  # nothing fits


def study_note(labels: tuple[str, ...], *, rounds: int) -> str | None:
    levels = ", ".join(f'{{ label = "{label}", value = {place} }}' for place, label in enumerate(labels, 1))
    text = f"""
        [study]
        name = "test/readahead"
        title = "Read-ahead"
        question = "Which read-ahead reads fastest?"
        why = "To see what is said."
        [[factor]]
        name = "kilobytes"
        knob = "block.read_ahead_kb"
        levels = [{levels}]
        reference = "{labels[0]}"
        [[workload]]
        name = "read"
        kind = "stream"
        operation = "read"
        size = "1 MiB"
        [[response]]
        name = "wall"
        primary = true
    """
    plan = Plan(read_study(text, "a file", trusted=True), SEED)
    return budget_note(plan, Spec.from_plan(plan), rounds=rounds, round_s=20.0, spent_s=0.0)


def test_of_a_study_the_levels_that_fit_are_chosen_by_the_options_of_run() -> None:
    labels = ("off", "1 page", "2 pages", "3 pages")
    assert study_note(labels, rounds=30) is None
    note = study_note(labels, rounds=5)
    assert note is not None
    found = re.search(r": give --time \S+, or --set '(kilobytes=.*)'$", note)
    assert found is not None, note
    chosen = request_of({"sets": (found[1],)}).sets
    assert chosen in ({"kilobytes": list(labels[:2])}, {"kilobytes": list(labels[:3])})
    assert study_note(tuple(chosen["kilobytes"]), rounds=5 * 6 // (2 + len(chosen["kilobytes"]))) is None


def test_the_plan_of_a_command_line_does_not_claim_files_of_the_lab() -> None:
    """The command's own files are what it reads; the lab's one small file is not used."""
    text = study_text(Wish(settings=("vm.swappiness=10,60",), parameters=(), commands=(("cat", "own.log"),)))
    study = read_study(text, "the command line", trusted=True)
    rows = dict(conducted(study, lambda _: 0.0, blocks=3).plan)
    assert rows["Workload: command"] == "command cat own.log"
    assert "chosen at random" not in rows["Files"]


def test_the_plan_cuts_the_text_of_a_long_command() -> None:
    script = "for file in *; do\n" + "  cat $file\n" * 100 + "done"
    text = study_text(
        Wish(settings=("vm.swappiness=10,60",), parameters=(), commands=(("sh", "-c", script),))
    )
    study = read_study(text, "the command line", trusted=True)
    said = dict(conducted(study, lambda _: 0.0, blocks=3).plan)["Workload: command"]
    assert said.startswith("command sh -c for file in *; do cat $file cat $file")
    assert said.endswith(" …")
    assert len(said) <= 120
