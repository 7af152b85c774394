"""Finds settings that exclude each other in one run, before anything is changed.

Factors are crossed, so any two of their levels may meet. Every pair of settings from different factors, the
pinned knobs and the lab's own options is checked. The rules for ext4 are those of the kernel's
fs/ext4/super.c and of Documentation/admin-guide/ext4.rst. What only mke2fs knows is checked by a dry run of
it on a sparse file.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from iotrial.errors import RequestError
from iotrial.knobs.sysctl import Sysctl
from iotrial.lab import superblock
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.knobs.mount import family
from iotrial.study.model import Setting, Study

#: Two patterns over "knob value", and why they exclude each other.
EXCLUDED: tuple[tuple[str, str, str], ...] = (
    (r"mount\.option data=journal", r"mount\.option delalloc", "ext4 refuses to mount with both"),
    (r"mount\.option data=journal", r"mount\.option dioread_nolock", "ext4 refuses to mount with both"),
    (
        r"mount\.option (data=.*|commit=.*|journal_async_commit|journal_checksum)",
        r"mkfs\.option -O (.*,)?\^has_journal(,.*)?",
        "ext4 without a journal refuses the mount option",
    ),
    (
        r"filesystem\.log (internal|external)",
        r"mkfs\.option -O (.*,)?\^has_journal(,.*)?",
        "without a journal there is no place for one",
    ),
    (
        r"file\.attribute journal-data",
        r"mkfs\.option -O (.*,)?\^has_journal(,.*)?",
        "without a journal, data cannot be journalled",
    ),
    (
        r"mount\.option (no)?(lazytime|sync|async)",
        r"mount\.atime lazytime",
        "both control when timestamps are written",
    ),
    (
        r"guest\.disk_aio native",
        r"guest\.disk_cache (writeback|writethrough|unsafe)",
        "QEMU uses Linux AIO only past the host's page cache",
    ),
    (r"block\.scheduler bfq", r"block\.wbt_lat_usec [1-9].*", "bfq disables write-back throttling"),
    (
        r"memory\.limit [0-9].*",
        r"cache\.state (warm|as-is)",
        "pages already cached are charged to the process that read them first, not to the work",
    ),
)
#: the knobs of these, and those with settings that ``clash`` compares; other settings never exclude each other
CLASHING = {"sysctl"} | {pattern.split(" ")[0].replace("\\", "") for *both, _ in EXCLUDED for pattern in both}
SHARES = ("vm.dirty_background_ratio", "vm.dirty_ratio")
NEEDS_NO_ORDER = ("data=writeback", "data=journal")


def check(study: Study, *, proc: Path = Path("/proc/sys")) -> None:
    """Raise RequestError for the first two settings that exclude each other, with the reason.

    ``proc``: where this machine's sysctls are read.
    """
    for (where, one), (other_where, other) in _pairs(study):
        why = clash(one, other)
        if why is not None:
            raise RequestError(
                f"{study.origin}: {_shown(one)} ({where}) and {_shown(other)} ({other_where}) cannot be combined: {why}",
                hint="omit one of the two, or compare whole settings: --level 'NAME: KNOB=VALUE KNOB=VALUE' for each "
                "(in a study file: levels with `set`)",
            )
    _check_async_commit(study)
    _check_shares(study, proc)


def clash(one: Setting, other: Setting) -> str | None:
    """Return why two settings exclude each other; None if they do not."""
    for first, second in ((one, other), (other, one)):
        for left, right, why in EXCLUDED:
            if re.fullmatch(left, _text(first)) and re.fullmatch(right, _text(second)):
                return why
    if one.knob != other.knob or "default" in (one.value, other.value):
        return None
    if one.knob == "mount.option" and family(one.value) == family(other.value):
        return "both set the same option"
    if one.knob == "mkfs.option" and set(superblock.about(one.value)) & set(superblock.about(other.value)):
        return "both set the same option"
    if one.knob == "sysctl":
        return _sysctls(
            dict(one.options).get("key", ""), one.value, dict(other.options).get("key", ""), other.value
        )
    return None


def _sysctls(key: str, value: str, other_key: str, other_value: str) -> str | None:
    if Sysctl.PAIRS.get(key) == other_key and "0" not in (value, other_value):
        return "the kernel clears one when the other is written"
    values = {key: value, other_key: other_value}
    if set(values) == set(SHARES) and all(v.isdigit() for v in values.values()):
        background, foreground = (int(values[share]) for share in SHARES)
        if background >= foreground > 0:
            return "the kernel then silently uses half of vm.dirty_ratio instead"
    return None


def _check_shares(study: Study, proc: Path) -> None:
    """Check vm.dirty_background_ratio against vm.dirty_ratio's current value on this machine."""
    own, other = SHARES
    for setting, found in _against_todays(study, own, other, proc):
        why = _sysctls(own, setting.value, other, found)
        if why is not None:
            raise RequestError(
                f"{study.origin}: {_shown(setting)} has no effect with {other} {found} of this machine: {why}",
                hint=f"choose a value below {found}, or set both: --level '{setting.value}: {own}={setting.value} "
                f"{other}={min(100, 2 * int(setting.value))}'",
            )


def halved(study: Study, *, proc: Path = Path("/proc/sys")) -> list[str]:
    """Return notes on levels of vm.dirty_ratio at which the kernel lowers this machine's background limit too."""
    other, own = SHARES
    return [
        f"at {own} {setting.value} the kernel uses {int(setting.value) / 2:g} as {other}, which is {found} on this machine"
        for setting, found in _against_todays(study, own, other, proc)
        if _sysctls(own, setting.value, other, found) is not None
    ]


def _against_todays(study: Study, own: str, other: str, proc: Path) -> Iterator[tuple[Setting, str]]:
    """Yield the settings of ``own`` with the value that ``other`` has on this machine, where the study does not set it."""
    sysctls = [setting for setting in study.settings if setting.knob == "sysctl"]
    turned = {dict(setting.options).get("key", "") for setting in sysctls}
    if own not in turned or turned & {other, Sysctl.PAIRS[other]}:
        return
    try:
        found = (proc / other.replace(".", "/")).read_text().strip()
    except OSError:
        return  # unknown on this machine
    for setting in sysctls:
        if dict(setting.options).get("key") == own and setting.value.isdigit() and found not in ("", "0"):
            yield setting, found


def _check_async_commit(study: Study) -> None:
    """ext4 refuses journal_async_commit with ordered data, which is the default data mode of a mount."""
    always = {*study.lab.mount_options, *(s.value for s in study.fixed if s.knob == "mount.option")}
    for factor in study.factors:
        for level in factor.levels:
            words = {s.value for s in level.settings if s.knob == "mount.option"}
            if "journal_async_commit" in words and not (words | always) & set(NEEDS_NO_ORDER):
                raise RequestError(
                    f"{study.origin}: factor {factor.name}: ext4 refuses journal_async_commit while data is ordered",
                    hint='add `mount_options = ["data=writeback"]` to [lab]',
                )


def _pairs(study: Study) -> Iterator[tuple[tuple[str, Setting], tuple[str, Setting]]]:
    """Yield every two settings that can meet in a run, each with its origin."""
    levels_of = [
        [
            [(f"factor {factor.name}", s) for s in level.settings if s.knob in CLASHING]
            for level in factor.levels
        ]
        for factor in study.factors
    ]
    groups = [[level for level in levels if level] for levels in levels_of]
    lab = [("[lab]", Setting("mount.option", option)) for option in study.lab.mount_options]
    lab += [("[[fixed]]", setting) for setting in study.fixed]
    # [lab] mkfs_options are not included: they are defaults that a factor may override
    left_open = None if any(setting.knob == "cache.state" for setting in study.settings) else "as-is"
    for state in (w.cache or left_open for w in study.workloads):
        lab += [("a workload", Setting("cache.state", state))] if state is not None else []
    groups += [[[item]] for item in lab]
    for levels in groups:
        for level in levels:
            yield from itertools.combinations(level, 2)
    for one, other in itertools.combinations(groups, 2):
        for left, right in itertools.product(one, other):
            yield from itertools.product(left, right)


def _text(setting: Setting) -> str:
    return f"{setting.knob} {' '.join(setting.value.split())}"


def _shown(setting: Setting) -> str:
    key = dict(setting.options).get("key")
    return f'{setting.knob} {key + " " if key else ""}"{setting.value}"'


def check_mkfs(study: Study) -> None:
    """Dry-run mke2fs on the options of every two factors and of all of them, each with the pinned ones.

    Raises RequestError with mke2fs's message.
    """
    if {s.value for s in study.settings if s.knob == "filesystem.type"} | {study.lab.filesystem} != {"ext4"}:
        return
    pinned = [s.value for s in study.fixed if s.knob == "mkfs.option"]
    factors = [
        [[s.value for s in level.settings if s.knob == "mkfs.option"] for level in factor.levels]
        for factor in study.factors
    ]
    varied = [levels for levels in factors if any(levels)]
    if not varied and not pinned:
        return
    every = {tuple(v for levels in varied for v in levels[at % len(levels)]) for at in (0, -1)}
    every |= {(*a, *b) for one, other in itertools.combinations(varied, 2) for a in one for b in other}
    if len(varied) == 1:
        every |= {tuple(level) for level in varied[0]}
    kind = FILESYSTEMS["ext4"]
    with tempfile.NamedTemporaryFile(prefix="iotrial-dry-") as file:
        file.truncate(max(study.lab.size_bytes, kind.smallest_bytes))
        for options in sorted(every):
            flags = [option for option in (*pinned, *options) if option != "default"]
            argv = kind.mkfs_argv((*study.lab.mkfs_options, *flags))
            done = subprocess.run(
                [argv[0], "-n", *argv[1:], file.name],
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C"},
            )
            if done.returncode != 0:
                raise RequestError(
                    f"{study.origin}: mkfs.ext4 refuses {' '.join(flags) or 'its defaults'}: {done.stderr.strip()[-300:]}",
                    hint="omit one of these options",
                )
