"""Parsing of study files, and the defaults for what they leave out."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_examples import WHOLE, changed, whole

from iotrial.errors import StudyError
from iotrial.study.model import Better, Claim, Level, Role, Scale, Setting
from iotrial.study.reader import load, read_study
from iotrial.study.work import Step
from iotrial.workloads.command import CommandWork
from iotrial.workloads.files import FilesWork


def test_the_head_the_lab_and_the_budget_are_read_with_their_units() -> None:
    study = whole()
    assert (study.name, study.title, study.question) == ("whole", "Everything at once", "Does it matter?")
    assert study.why == "Because.\n[[factor]] is no header here.\n"
    assert (study.margin, study.alpha) == (0.02, 0.01)
    assert (study.lab.kind, study.lab.filesystem, study.lab.size_bytes) == ("image", "xfs", 1073741824)
    assert study.lab.mkfs_options == ("-m", "crc=1")
    assert (study.budget.time_s, study.budget.blocks) == (90.0, 100)
    assert (study.text, study.origin, study.trusted) == (WHOLE, "whole.toml", False)


def test_a_factor_has_levels_a_reference_and_defaults() -> None:
    atime = whole().factor("atime")
    assert atime.role is Role.TREATMENT
    assert [level.label for level in atime.levels] == ["strictatime", "relatime", "noatime"]
    assert atime.levels[2].settings == (Setting("mount.atime", "noatime"),)
    assert (atime.reference, atime.default, atime.line) == ("relatime", ("relatime", "noatime"), 23)


def test_a_level_may_bundle_knobs_and_numbers_and_truth_become_text() -> None:
    tuned = whole().factor("tuning").level("tuned")
    assert tuned.settings == (Setting("block.read_ahead_kb", "4096"), Setting("block.add_random", "false"))


def test_option_keys_of_a_factor_address_its_knob() -> None:
    threads = whole().factor("threads")
    option = (("placeholder", "{threads}"),)
    assert threads.levels == (
        Level("1", (Setting("command.argument", "1", option),)),
        Level("2", (Setting("command.argument", "2", option),)),
        Level("many", (Setting("command.argument", "64", option),)),
    )
    assert threads.default == ("1", "2", "many")
    assert whole().fixed == (Setting("sysctl", "10", (("key", "vm.dirty_ratio"),)),)


def test_a_bundle_may_be_a_list_where_knobs_need_options() -> None:
    old = '{ label = "stock", set = { "block.read_ahead_kb" = 128 } }'
    new = '{ label = "stock", set = [{ knob = "sysctl", key = "vm.swappiness", level = 1 }] }'
    stock = read_study(changed(old, new), "s.toml", trusted=False).factor("tuning").level("stock")
    assert stock.settings == (Setting("sysctl", "1", (("key", "vm.swappiness"),)),)


def test_workloads_are_read_by_their_kind() -> None:
    study = whole()
    assert study.workload("probe").work == FilesWork(
        operations=("open", "read-to-end", "close"), files=20, size_bytes=4096
    )
    assert study.workload("probe").cache == "warm"
    sort = study.workload("sort")
    assert sort.work == CommandWork(
        steps=(Step("in", ("sort", "--parallel={threads}", "{file}")), Step("out", ("cat", "{files}"))),
        timeout_s=300.0,
        environment=(("LC_ALL", "C"),),
    )
    assert sort.only == {"size": ("10 KiB", "1 MiB")}
    assert [workload.default for workload in study.workloads] == [True, True, False]


def test_named_responses_come_first_and_the_kind_s_own_stay_exploratory() -> None:
    responses = [r for r in whole().responses if r.workload == "probe"]
    assert [r.name for r in responses if r.primary] == ["read_to_end_time"]
    assert [r.name for r in responses][:4] == ["read_to_end_time", "cpu", "wall", "open_time"]
    assert responses[1].better is Better.NONE
    assert {r.name for r in responses} >= {"close_time", "user", "sys", "device_write_bytes_synced"}


def test_a_workload_of_which_nothing_is_said_has_its_kind_s_first_response_as_primary() -> None:
    text = changed('name = "cpu"\nbetter = "none"', 'name = "cpu"\nworkload = "probe"')
    responses = {r.name: r for r in read_study(text, "s", trusted=False).responses if r.workload == "sort"}
    assert [name for name, r in responses.items() if r.primary] == ["wall"]
    assert {"wall.in", "cpu.in", "wall.out", "cpu.out", "max_rss"} <= responses.keys()
    assert responses["faults_major"].scale is Scale.DIFFERENCE


def test_without_a_word_on_primary_the_first_named_response_is() -> None:
    primary = [(r.workload, r.name) for r in whole().responses if r.primary]
    assert primary == [("probe", "read_to_end_time"), ("sort", "cpu"), ("slow", "cpu")]


def test_claims_are_tied_to_levels_by_their_labels() -> None:
    first, second = whole().claims
    assert first == Claim(
        source="a web page, 2009",
        text="noatime halves it",
        factor="atime",
        level="noatime",
        reference="relatime",
        ratio=0.5,
        workload="probe",
        response="read_to_end_time",
        condition={"size": "10 KiB", "workload": "probe"},
    )
    assert (second.level, second.reference, second.ratio, second.note) == (
        "strictatime",
        "noatime",
        None,
        "never repeated",
    )


def test_a_claim_may_say_what_a_trial_must_have_been_and_that_none_can_judge_it() -> None:
    needs = 'needs = { disk = "rotating", engine = ["mysql", "mariadb"], rate = "1000 Mbit/s" }\ncannot = "gone"\n'
    text = WHOLE.replace("\nratio = ", f"\n{needs}ratio = ", 1)
    first = read_study(text, "whole.toml", trusted=True).claims[0]
    assert first.needs == {"disk": ("rotating",), "engine": ("mysql", "mariadb"), "rate": ("1 Gbit/s",)}
    assert first.cannot == "gone"


def test_the_smallest_study_has_defaults_for_all_the_rest() -> None:
    text = """
[study]
name = "small"
question = "?"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[workload]]
name = "w"
kind = "files"
operations = ["stat"]
[[claim]]
source = "s"
text = "t"
level = "0777"
"""
    study = read_study(text, "small.toml", trusted=True)
    assert (study.title, study.margin, study.alpha, study.lab.kind) == ("small", 0.03, 0.05, None)
    assert study.factors[0].reference == "0444"
    assert study.factors[0].default == ("0444", "0777")
    assert (study.claims[0].factor, study.claims[0].reference) == ("mode", "0444")
    assert study.trusted


def test_a_file_is_loaded_by_path_and_named_in_errors(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(WHOLE)
    study = load(path)
    assert (study.origin, study.trusted) == (str(path), True)
    path.chmod(0o646)
    assert not load(path).trusted
    assert load(path, trusted=True).trusted
    path.write_bytes(b"[study]\nname = '\xff'\n")
    with pytest.raises(StudyError, match=r"my\.toml:2: is not UTF-8"):
        load(path)


def test_interactions_are_pairs_of_treatments_in_the_order_of_the_study() -> None:
    def read(pairs: str) -> tuple[tuple[str, str], ...]:
        text = f"{WHOLE}\n[design]\ninteractions = {pairs}\n"
        return read_study(text, "s.toml", trusted=False).design.interactions

    assert read('["tuning:ATIME"]') == read('["all"]') == (("atime", "tuning"),)
    for pairs, message in (
        ('["atime"]', "not a pair of factors"),
        ('["atime:atime"]', "cannot interact with itself"),
        ('["atime:size"]', 'no treatment factor is called "size"'),
        ('["atime:tuning", "tuning:atime"]', "given twice"),
    ):
        with pytest.raises(StudyError, match=message):
            read(pairs)
