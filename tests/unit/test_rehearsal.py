"""Rehearsals: the parts of a study that are reduced, and those that are kept."""

from __future__ import annotations

from iotrial.design.plan import Plan
from iotrial.runner.rehearsal import ShortPlan, cut_down, too_large_to_be_warm
from iotrial.study import catalogue
from iotrial.study.model import Study
from iotrial.study.reader import read_study
from iotrial.study.select import select

SEED = "0" * 32


def cut(name: str) -> Study:
    return cut_down(select(catalogue.find(name)))


def test_work_becomes_little_and_each_condition_has_one_level() -> None:
    study = cut("mount/atime")
    assert all(len(factor.levels) == 1 for factor in study.condition_factors)
    assert len(study.factor("atime").levels) == 5
    for workload in study.workloads:
        # grep gets a folder: its files stay the same for all arms
        assert workload.work.files == workload.work.pool == 8
    assert study.lab.size_bytes < catalogue.find("mount/atime").lab.size_bytes
    assert not study.account


def test_the_smallest_of_the_sizes_that_a_condition_varies_is_taken() -> None:
    text = """
[study]
name = "sizes"
question = "Does it matter?"
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0444", "0777"]
[[factor]]
name = "size"
knob = "file.size"
levels = ["1 MiB", "64 B", "4 KiB"]
role = "condition"
[[workload]]
name = "read"
kind = "files"
operations = ["open", "read-to-end", "close"]
[[workload]]
name = "two"
kind = "random"
operations = 100000
size = "1 GiB"
block = "1 MiB"
direct = true
ramp = 1000
depth = 4
engine = "io_uring"
only = { size = ["64 B", "1 MiB"] }
"""
    study = cut_down(select(read_study(text, "sizes.toml", trusted=False)))
    assert [level.label for level in study.factor("size").levels] == ["64 B"]
    work = study.workload("two").work
    # a few whole blocks
    assert (work.operations, work.ramp, work.size_bytes) == (64, 8, 4 << 20)  # type: ignore[union-attr]
    assert work.depth == 4  # type: ignore[union-attr]


def test_of_a_large_design_so_many_runs_are_made_that_each_level_occurs() -> None:
    study = cut("system/screen")
    whole, short = Plan(study, SEED, controls=False), ShortPlan(study, SEED, controls=False)
    condition = short.conditions[0]
    runs = short.block(condition, 0).runs
    assert 2 <= len(runs) < len(whole.block(condition, 0).runs) // 4
    found = {pair for run in runs for pair in run.arm.treatment.items()}
    assert found == {
        (factor.name, level.label) for factor in study.treatment_factors for level in factor.levels
    }
    assert [run.slot for run in runs] == sorted(run.slot for run in runs)


def test_files_larger_than_the_memory_cannot_be_warm_also_where_a_level_names_their_size() -> None:
    study = catalogue.find("files/permissions")  # its sizes are levels such as "10 KiB"
    assert dict(too_large_to_be_warm(study, 1)).keys() == {one.name for one in study.workloads}
    assert not list(too_large_to_be_warm(study, 1 << 50))


def test_a_lab_in_which_programs_make_what_a_run_needs_keeps_its_size() -> None:
    shipped = catalogue.find("application/git")
    assert shipped.workloads[0].work.files * shipped.workloads[0].work.size_bytes < 1 << 20
    assert cut("application/git").lab.size_bytes == shipped.lab.size_bytes
