"""The drawing of a study's design that `show` prints before anything is measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import program
from iotrial.design.plan import Plan
from iotrial.report.drawing import EXAMPLE_SEED, WIDTH, drawn
from iotrial.study.catalogue import find, names
from iotrial.study.select import select

SLOW = {"system/screen", "block/queue", "filesystem/writeback"}  # making a fractional design takes seconds


def part(name: str, lines: tuple[str, ...]) -> str:
    """Return the text next to a name, joined to one line."""
    text = "\n".join(lines) + "\nend"
    found = re.search(rf"^{name} +(.*?)\n(?=\S|$|  block)", text, re.M | re.S)
    assert found is not None, text
    return " ".join(found[1].split())


def test_one_factor_is_shown_with_its_reference_and_the_blocks_that_a_run_would_have() -> None:
    _, lines = drawn(find("files/permissions"))
    assert part("treatment", lines) == "mode: 0777 (reference), 0444, 0555, 0666"
    # 3 workloads, sizes 4, cache states 2, file systems 3, mounts 2, readers 2
    assert part("crossed", lines).startswith("workload x cache: 2 x 2 = 4 conditions (288 with --full)")
    plan = Plan(select(find("files/permissions")), EXAMPLE_SEED)
    second = [run.arm.name for run in plan.block(plan.conditions[0], 1).runs]
    assert f"  block 2  | {' | '.join(second)} |" in lines
    first = next(line for line in lines if line.startswith("  block 1"))
    assert "| 0777 (slowed) |" in first
    assert "| 0777 (copy) |" in first
    assert part("judged", lines).startswith(
        "wall of probe; wall of md5sum 12 comparisons"
    )  # 3 levels, 4 conditions


def test_two_crossed_factors_are_a_table_of_the_order_of_runs() -> None:
    _, lines = drawn(find("mount/commit"))
    top = next(i for i, line in enumerate(lines) if line.strip().startswith("data  "))
    cells = [int(word) for line in lines[top + 1 : top + 4] for word in line.split()[1:]]
    assert sorted(cells) == [1, 2, 3, 4, 5, 6]
    plan = Plan(select(find("mount/commit")), EXAMPLE_SEED)
    place = {run.arm.name: run.slot + 1 for run in plan.block(plan.conditions[0], 1).runs}
    row = next(line.split() for line in lines if line.split()[:1] == ["data=journal"])
    assert [int(word) for word in row[1:]] == [place["data=journal+commit=5"], place["data=journal+commit=1"]]


def test_whole_plots_are_shown_as_stretches() -> None:
    _, lines = drawn(find("nas/endurance"))
    begins = [line.split(":")[0].strip() for line in lines if re.match(r"    \S", line)]
    assert sorted(begins) == ["70 %", "70 %", "fresh", "fresh", "fresh (copy)"]


def test_of_a_screen_rows_are_shown_and_every_factor_is_named() -> None:
    shape, lines = drawn(find("system/screen"))
    assert (shape.factors, shape.runs_a_block, shape.conditions) == (30, (64, 64), 1)
    rows = [line for line in lines if line.startswith("    run ")]
    assert all(re.fullmatch(r"    run +\d+  [-+]{30}  row\d\d(  slowed)?", row) for row in rows)
    text = "\n".join(lines)
    assert all(f"{factor.name}: " in text for factor in find("system/screen").treatment_factors)


@pytest.mark.parametrize("name", [name for name in names() if name not in SLOW])
def test_the_tables_of_every_shipped_study_are_drawn_within_80_columns(name: str) -> None:
    shape, lines = drawn(find(name))
    assert shape.problem is None
    tables = [
        line for line in lines if re.match(r" {2,4}\S", line)
    ]  # sentences are wrapped when they are printed
    assert max(map(len, tables)) <= WIDTH
    study = find(name)
    for factor in study.factors:
        assert factor.name in "\n".join(lines)


def test_a_study_that_cannot_be_planned_is_shown_with_the_reason(tmp_path: Path) -> None:
    levels = ", ".join(f'"{number}"' for number in range(40))
    factors = "".join(
        f'[[factor]]\nname = "f{n}"\nknob = "command.argument"\nplaceholder = "{{f{n}}}"\nlevels = [{levels}]\n'
        for n in range(2)
    )
    (tmp_path / "large.toml").write_text(
        '[study]\nname = "large"\nquestion = "How many?"\nmargin = "5 %"\n'
        + factors
        + '[[workload]]\nname = "w"\nkind = "command"\nfiles = 1\nsize = "1 MiB"\ncache = "warm"\n'
        'argv = ["true", "{f0}", "{f1}", "{file}"]\n'
    )
    done = program.iotrial("show", str(tmp_path / "large.toml"))
    assert done.returncode == 0, done.stderr
    assert "design     cannot be run at the default levels" in done.stdout
    assert "1,600 arms" in " ".join(done.stdout.split())


def test_a_label_from_outside_steers_no_terminal_and_starts_no_row(tmp_path: Path) -> None:
    (tmp_path / "hostile.toml").write_text(
        '[study]\nname = "hostile"\nquestion = "Q\\u001b[31m?"\nwhy = "w"\nmargin = "5 %"\n'
        '[[factor]]\nname = "f"\nknob = "command.argument"\nplaceholder = "{f}"\nlevels = ["a\\u001b[2J", "b\\u202e"]\n'
        '[[workload]]\nname = "w"\nkind = "command"\nfiles = 1\nsize = "1 MiB"\ncache = "warm"\n'
        'argv = ["true", "{f}", "{file}"]\n'
    )
    done = program.iotrial("show", str(tmp_path / "hostile.toml"))
    assert "\x1b" not in done.stdout + done.stderr
    assert "\u202e" not in done.stdout
