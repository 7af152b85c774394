"""Settings that may not be combined in one run: the kernel or mke2fs refuses the pair, or one masks the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.errors import RequestError
from iotrial.lab import superblock
from iotrial.runner import combinations
from iotrial.runner.quick_study import bundles_of
from iotrial.study.model import Setting, Study
from iotrial.study.reader import read_study
from values import replace

HEAD = """
[study]
name = "pairs"
question = "Do they go together?"
[lab]
kind = "image"
size = "600 MiB"
{lab}
[[workload]]
name = "read"
kind = "files"
files = 5
{work}
operations = ["open", "read-to-end", "close"]
"""


def study(*factors: tuple[str, str, list[str]], lab: str = "", work: str = 'cache = "cold"') -> Study:
    text = HEAD.format(lab=lab, work=work)
    for number, (knob, key, levels) in enumerate(factors):
        name = "key" if knob == "sysctl" else "option"
        option = f'{name} = "{key}"\n' if key else ""
        shown = ", ".join(f'{{ label = "l{n}", value = "{level}" }}' for n, level in enumerate(levels))
        text += f'[[factor]]\nname = "f{number}"\nknob = "{knob}"\n{option}levels = [{shown}]\n'
    return read_study(text, "pairs.toml", trusted=False)


def mount(*levels: str) -> tuple[str, str, list[str]]:
    return ("mount.option", levels[-1].partition("=")[0], list(levels))


def mkfs(*levels: str) -> tuple[str, str, list[str]]:
    return ("mkfs.option", " ".join(superblock.about(levels[-1])), list(levels))


def test_options_that_have_nothing_to_do_with_each_other_go_together() -> None:
    whole = study(
        mount("default", "commit=30"),
        mount("default", "nodelalloc"),
        mount("default", "nobarrier"),
        mount("default", "noauto_da_alloc"),
        mkfs("default", "-I 512"),
        mkfs("default", "-O ^dir_index"),
        mkfs("default", "-O ^flex_bg"),
        mkfs("default", "-J size=8"),
        ("sysctl", "vm.dirty_ratio", ["20", "40"]),
        ("sysctl", "vm.dirty_background_ratio", ["10", "5"]),
    )
    combinations.check(whole)
    combinations.check_mkfs(whole)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (mount("default", "nodelalloc"), mount("default", "delalloc"), "set the same option"),
        (mount("default", "sync"), mount("default", "async"), "set the same option"),
        (mount("default", "dioread_lock"), mount("default", "dioread_nolock"), "set the same option"),
        (mount("default", "data=journal"), mount("default", "delalloc"), "refuses to mount with both"),
        (mount("default", "data=journal"), mount("default", "dioread_nolock"), "refuses to mount with both"),
        (mount("default", "data=writeback"), mkfs("default", "-O ^has_journal"), "without a journal"),
        (mount("default", "commit=30"), mkfs("default", "-O ^dir_index,^has_journal"), "without a journal"),
        (mkfs("default", "-O ^dir_index"), mkfs("default", "-O flex_bg,dir_index"), "set the same option"),
        (("block.scheduler", "", ["none", "bfq"]), ("block.wbt_lat_usec", "", ["0", "2000"]), "bfq"),
        (
            ("sysctl", "vm.dirty_ratio", ["20", "40"]),
            ("sysctl", "vm.dirty_bytes", ["2097152", "4194304"]),
            "clears",
        ),
        (
            ("sysctl", "vm.dirty_ratio", ["20", "40"]),
            ("sysctl", "vm.dirty_background_ratio", ["10", "30"]),
            "half of vm.dirty_ratio",
        ),
        (
            ("mount.atime", "", ["relatime", "lazytime"]),
            mount("default", "lazytime"),
            "when timestamps are written",
        ),
    ],
)
def test_two_factors_whose_levels_cannot_meet_are_refused(
    one: tuple[str, str, list[str]], other: tuple[str, str, list[str]], words: str
) -> None:
    for order in ((one, other), (other, one)):
        with pytest.raises(RequestError, match=words):
            combinations.check(study(*order))


def test_pages_that_are_cached_already_are_on_nobodys_limit() -> None:
    limit = ("memory.limit", "", ["none", "64 MiB"])
    combinations.check(study(limit))
    with pytest.raises(RequestError, match="charged to the process that"):
        combinations.check(study(limit, work='cache = "warm"'))


def test_a_journal_that_commits_without_waiting_needs_data_that_is_not_ordered() -> None:
    one = mount("default", "journal_async_commit")
    with pytest.raises(RequestError, match="data is ordered"):
        combinations.check(study(one))
    combinations.check(study(one, lab='mount_options = ["data=writeback"]'))


def test_what_only_mke2fs_knows_it_is_asked_and_its_words_are_told() -> None:
    with pytest.raises(RequestError, match=r"mkfs.ext4 refuses .*-G 3.*: .*power of 2"):
        combinations.check_mkfs(study(mkfs("default", "-I 1024"), mkfs("default", "-G 3")))


def test_pinned_options_of_mkfs_are_tried_with_the_others() -> None:
    pinned = replace(study(mkfs("default", "-I 1024")), fixed=(Setting("mkfs.option", "-G 3"),))
    with pytest.raises(RequestError, match=r"-G 3.*power of 2"):
        combinations.check_mkfs(pinned)


def test_the_default_level_clashes_with_nothing() -> None:
    assert combinations.clash(Setting("mount.option", "default"), Setting("mount.option", "commit=5")) is None


def test_a_share_of_dirty_pages_is_held_against_the_other_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm/dirty_ratio").write_text("20\n")
    (tmp_path / "vm/dirty_background_ratio").write_text("10\n")
    combinations.check(study(("sysctl", "vm.dirty_background_ratio", ["10", "5"])), proc=tmp_path)
    combinations.check(study(("sysctl", "vm.dirty_ratio", ["20", "40"])), proc=tmp_path)
    above = study(("sysctl", "vm.dirty_background_ratio", ["10", "20"]))
    with pytest.raises(
        RequestError, match=r"vm.dirty_ratio 20 of this machine.*half of vm.dirty_ratio"
    ) as found:
        combinations.check(above, proc=tmp_path)
    # the remedy is one that works
    assert found.value.hint is not None
    (level,) = bundles_of([found.value.hint.partition("'")[2].partition("'")[0]], today=False)[1:]
    combinations.check(
        replace(above, factors=(replace(above.factors[0], levels=(level, level)),)), proc=tmp_path
    )
    # a limit below the background limit is in force, and lowers that one
    below = study(("sysctl", "vm.dirty_ratio", ["20", "8"]))
    combinations.check(below, proc=tmp_path)
    (note,) = combinations.halved(below, proc=tmp_path)
    assert note.startswith("at vm.dirty_ratio 8 the kernel uses 4 as vm.dirty_background_ratio, which is 10")
    (tmp_path / "vm/dirty_ratio").write_text("0\n")  # the limit in bytes is in force
    combinations.check(study(("sysctl", "vm.dirty_background_ratio", ["10", "20"])), proc=tmp_path)
    both = study(
        ("sysctl", "vm.dirty_ratio", ["8", "9"]), ("sysctl", "vm.dirty_background_ratio", ["2", "4"])
    )
    combinations.check(both, proc=tmp_path)
