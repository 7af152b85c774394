"""Today's values: named where no level has them, a level by the word `today`, and restored; also for pairs of sysctls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from running import iotrial, stored_runs
from test_in_place import attempt, mounted, queue_of

pytestmark = pytest.mark.root

__all__ = ["mounted"]

VM = Path("/proc/sys/vm")
PAIR = ("dirty_bytes", "dirty_ratio")


def limits() -> tuple[str, ...]:
    """Return the limits of dirty pages, from the kernel's own files."""
    names = (*PAIR, "dirty_background_bytes", "dirty_background_ratio")
    return tuple((VM / name).read_text().strip() for name in names)


SEEN = [word for name in PAIR for word in ("--response", f"{name}=regex:{name} ([0-9]+)")]
#: prints each limit plus 1: a response that is compared by ratio is never 0
SHOW = "cat f000 > /dev/null; for one in dirty_bytes dirty_ratio; do echo $one $(($(cat /proc/sys/vm/$one) + 1)); done"


def test_a_value_of_today_that_is_no_level_is_named_in_plan_report_and_json(
    state: Path, mounted: Path
) -> None:
    words = ("block.read_ahead_kb=16,1024", "--in", str(mounted))
    found = (queue_of(mounted) / "read_ahead_kb").read_text().strip()
    plan = iotrial("try", *words, "--plan", "--", "cat", "f000").stdout
    assert re.search(rf"^today +block.read_ahead_kb {found}$", plan, re.MULTILINE)
    assert f"read_ahead_kb {found} is not among the levels" in plan
    report = attempt(*words, "--yes", "--blocks", "3", "--no-stop", "--", "cat", "f000")
    (today,) = report["trial"]["lab_settings"]["today"]
    assert (today["setting"], today["value"], today["levels"]) == ("block.read_ahead_kb", found, [])
    shown = " ".join(iotrial("report", "last").stdout.split())
    assert f"read_ahead_kb {found} is not among the levels" in shown
    report = attempt(*words, "--today", "--yes", "--blocks", "3", "--no-stop", "--", "cat", "f000")
    effects = [one for one in report["effects"] if one["primary"]]
    assert {one["reference"] for one in effects} == {f"{found} (today)"}
    assert {one["level"] for one in effects} == {"16", "1024"}
    assert report["trial"]["lab_settings"]["today"][0]["levels"] == [f"{found} (today)"]


def test_today_is_one_level_with_the_same_value(state: Path, mounted: Path) -> None:
    report = attempt(
        "block.read_ahead_kb=16,764,today", "--in", str(mounted), "--yes", "--blocks", "3", "--no-stop",
        "--", "cat", "f000",
    )  # fmt: skip
    assert {one["level"] for one in report["effects"] if one["primary"]} == {"764 (today)"}
    done = iotrial(
        "try", "block.read_ahead_kb=764,today", "--in", str(mounted), "--plan", "--", "cat", "f000", check=2
    )
    assert "764 is today's value" in done.stderr


def test_bytes_are_tried_against_a_ratio_in_force(state: Path, mounted: Path) -> None:
    """Each run sees one of the pair, and the other as 0: the kernel keeps one of them."""
    before = limits()
    assert before[0] == "0", "this test expects a ratio to be in force"
    attempt(
        "vm.dirty_bytes=today,268435456", "--in", str(mounted), "--yes", "--blocks", "4", "--no-stop", *SEEN,
        "--", "sh", "-c", SHOW,
    )  # fmt: skip
    assert limits() == before
    seen = {
        (run["treatment"]["dirty_bytes"], *(run["responses"][name] - 1 for name in PAIR))
        for run in stored_runs(state)
    }
    assert seen == {("0 (today)", 0.0, float(before[1])), ("268435456", 268435456.0, 0.0)}


def test_levels_of_several_settings_keep_today_for_what_they_do_not_name(state: Path, mounted: Path) -> None:
    before = limits()
    levels = {
        "small": ("vm.dirty_bytes=67108864 vm.dirty_background_bytes=16777216", (67108864.0, 0.0)),
        "ratios": ("vm.dirty_ratio=50 vm.dirty_background_ratio=30", (0.0, 50.0)),
    }
    words = [word for name, (text, _) in levels.items() for word in ("--level", f"{name}: {text}")]
    attempt(
        *words, "--today", "--in", str(mounted), "--yes", "--blocks", "3", "--no-stop", *SEEN, "--", "sh", "-c", SHOW
    )  # fmt: skip
    assert limits() == before
    runs = stored_runs(state)
    seen = {
        (run["treatment"]["settings"], tuple(run["responses"][name] - 1 for name in PAIR))
        for run in runs
        if run["kind"] == "treatment"
    }
    expected = {(name, values) for name, (_, values) in levels.items()}
    assert seen == expected | {("today", (0.0, float(before[1])))}


def test_today_is_a_level_in_a_study_file(state: Path, mounted: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved.toml"
    words = (
        "vm.swappiness=today,13",
        "--in",
        str(mounted),
        "--save",
        str(saved),
        "--plan",
        "--",
        "cat",
        "f000",
    )
    iotrial("try", *words)
    assert '"today"' in saved.read_text()
    plan = iotrial("plan", str(saved), "--on", str(mounted)).stdout
    value = (VM / "swappiness").read_text().strip()
    assert f"sysctl vm.swappiness of this machine: {value}, 13" in plan
