"""The lab's parsers: mountinfo, cache rules, knob settings."""

from __future__ import annotations

import pytest

from iotrial.errors import IotrialError, RequestError, UnknownName, UnsupportedLevel
from iotrial.lab import cache, registry
from iotrial.lab.target import parse_mountinfo
from iotrial.study.model import Setting


def parse(knob: str, value: str, **options: str) -> str:
    setting = Setting(knob, value, tuple(options.items()))
    registry.check_options(setting)
    return registry.knob(knob).parse(setting)


def test_mountinfo_is_read_with_optional_fields_and_escapes() -> None:
    # the example of proc_pid_mountinfo(5), with a blank in the path
    line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue"
    info = parse_mountinfo(line)
    assert info.target == "/mnt 2"
    assert info.type == "ext3"
    assert info.source == "/dev/root"
    assert info.options == {"rw", "noatime", "errors=continue"}


def test_mountinfo_without_optional_fields_is_read_too() -> None:
    assert parse_mountinfo("21 1 0:20 / /run rw - tmpfs none rw,size=1k").type == "tmpfs"


@pytest.mark.parametrize(
    ("state", "read", "expected", "rule"),
    [
        ("cold-files", 4096, 4096, None),
        ("cold-files", 4095, 4096, "cold_was_not_cold"),
        ("cold-data", 0, 1, "cold_was_not_cold"),
        ("warm", 0, 4096, None),
        ("warm", 512, 4096, "warm_was_not_warm"),
        ("as-is", 512, 4096, None),
    ],
)
def test_a_cache_state_is_judged_by_the_bytes_that_the_device_gave(
    state: str, read: int, expected: int, rule: str | None
) -> None:
    assert cache.void_rule(state, bytes_read=read, bytes_expected=expected) == rule


def test_cold_means_the_coldest_start_that_a_lab_can_make() -> None:
    assert cache.resolve("cold", "image") == "cold-files"
    assert cache.resolve("cold", "directory") == "cold-data"


def test_a_directory_lab_says_what_it_can_when_asked_for_an_unmount() -> None:
    with pytest.raises(UnsupportedLevel) as caught:
        cache.resolve("cold-files", "directory")
    assert "cold-data" in str(caught.value.hint)


def test_an_unknown_knob_is_told_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        registry.knob("file.mod")
    assert 'did you mean "file.mode"?' in str(caught.value.hint)


@pytest.mark.parametrize(
    ("knob", "value", "canonical"),
    [
        ("file.mode", "644", "0644"),
        ("file.mode", "0o755", "0755"),
        ("file.size", "4 KiB", "4096"),
        ("mount.readonly", "true", "ro"),
        ("mkfs.option", "-b  4096", "-b 4096"),
        ("mount.option", "commit=30", "commit=30"),
    ],
)
def test_values_become_canonical(knob: str, value: str, canonical: str) -> None:
    assert parse(knob, value) == canonical


@pytest.mark.parametrize(
    ("knob", "value", "options"),
    [
        ("file.mode", "rwxr-xr-x", {}),
        ("file.mode", "10000", {}),
        ("file.size", "0 B", {}),
        ("file.size", "4 KiX", {}),
        ("file.link", "junction", {}),
        ("mount.atime", "neveratime", {}),
        ("mount.option", "context=system_u", {}),
        ("mount.option", "data=/etc/passwd", {}),
        ("mount.option", "commit=30,exec", {}),
        ("mkfs.option", "-J device=/dev/vda", {}),
        ("mkfs.option", "-d /etc", {}),
        ("block.scheduler", "noop", {}),
        ("block.scheduler", "deadline", {}),
        ("block.scheduler", "../../x", {}),
        ("block.nr_requests", "0", {}),
        ("sysctl", "60", {"key": "kernel.core_pattern"}),
        ("sysctl", "1000", {"key": "vm.swappiness"}),
        ("sysctl", "60", {}),
        ("environment.variable", "x", {"variable": "LD_PRELOAD"}),
        ("environment.variable", "x", {"variable": "A=B"}),
        ("command.argument", "x", {"placeholder": "{file}"}),
        ("process.user", "daemon", {}),
        ("cache.state", "lukewarm", {}),
        ("file.mode", "0644", {"key": "x"}),
    ],
)
def test_what_a_knob_does_not_allow_is_refused_before_anything_is_changed(
    knob: str, value: str, options: dict[str, str]
) -> None:
    with pytest.raises(RequestError):
        parse(knob, value, **options)


def test_old_names_of_schedulers_are_answered_with_the_modern_one() -> None:
    with pytest.raises(UnsupportedLevel) as caught:
        parse("block.scheduler", "cfq")
    assert '"bfq"' in str(caught.value.hint)


def test_every_knob_says_its_levels_or_its_range_in_words() -> None:
    asks_the_kernel = {
        "memory.huge_pages",
        "block.scheduler",
        "filesystem.type",
        "mount.option",
        "mkfs.option",
        "mount.readonly",
        "cache.state",
    }
    for name, knob in registry.knobs().items():
        assert knob.title
        assert knob.LEVELS or knob.open_levels or name in asks_the_kernel, name


def test_no_error_of_a_knob_is_of_a_foreign_kind() -> None:
    for name, knob in registry.knobs().items():
        for value in ("", "\0", "x" * 100_000, "-1", "../..", "é", "{", "%n"):
            try:
                knob.parse(Setting(name, value, ((knob.option or "none", value),)))
            except IotrialError:
                continue
