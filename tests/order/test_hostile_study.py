"""Calls of hostile studies, recorded at the target: as root they may only touch the lab and a few kernel files.

Studies over all knobs of the registry are drawn with hostile keys, values and options. They may be refused; an
accepted one is run against a recording. A new knob in the registry is covered automatically.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from recording import Recording

from iotrial.design.plan import Plan
from iotrial.errors import IotrialError
from iotrial.lab import registry
from iotrial.runner import session as session_module
from iotrial.runner.resolve import resolve
from iotrial.runner.run import Runner
from iotrial.runner.session import Session
from iotrial.study.catalogue import find
from iotrial.study.model import Factor, LabSpec, Level, Role, Setting, Study, Workload
from iotrial.study.work import Step
from iotrial.workloads.command import CommandWork
from values import replace

#: what root may write outside the lab: repeated here on purpose, so that a longer list elsewhere is noticed
SYSCTLS = {
    f"/proc/sys/{key}"
    for key in (
        "vm/dirty_background_ratio", "vm/dirty_expire_centisecs", "vm/dirty_ratio", "vm/dirty_writeback_centisecs",
        "vm/dirtytime_expire_seconds", "vm/page-cluster", "vm/swappiness", "vm/vfs_cache_pressure",
        "fs/xfs/xfssyncd_centisecs", "vm/compaction_proactiveness", "vm/dirty_background_bytes", "vm/dirty_bytes",
        "vm/extfrag_threshold", "vm/laptop_mode", "vm/page_lock_unfairness", "vm/stat_interval", "vm/watermark_boost_factor",
        "vm/watermark_scale_factor",
    )
} | {"/sys/kernel/mm/transparent_hugepage/enabled"}  # fmt: skip
PLACES = re.compile(
    r"/run/iotrial(?:/(?:ext4|xfs|btrfs)(?:/s[0-9]+(?:/f[0-9]{6})?|/\.iotrial-health)?)?"
    r"|/dev/loop9"
    r"|/sys/block/loop9/queue/(?:scheduler|nr_requests|read_ahead_kb|wbt_lat_usec|max_sectors_kb|nomerges|rq_affinity|add_random"
    r"|rotational|stable_writes|write_cache)"
    r"|/sys/block/loop9/bdi/(?:max_ratio|min_ratio|strict_limit)"
    r"|LAB(?:/iotrial-lab-0{8}(?:/s[0-9]+|/\.iotrial-health)?)?"
)
READING = {"hello", "read", "stat", "statfs", "list", "readlink", "time"}
TOOLS = {
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
    "chown",
    "dumpe2fs",
    "chattr",
    "lsattr",
    "renice",
    "ionice",
    "taskset",
}
#: options of mount(2) that move a mount, name a device or a path, or lift a protection
FORBIDDEN_WORDS = re.compile(
    r"remount.+|bind|rbind|move|loop|context|fscontext|rootcontext|defcontext|errors|usrjquota|grpjquota|journal_path"
    r"|journal_dev|logdev|rtdev|device|subvol|subvolid|suid|dev|exec|user|users|uid|gid|umask|data_err"
)

HOSTILE = (
    "", " ", "\n", "0", "-1", "1_0", " 1 ", "+5", "\u0666", "\uff11\uff10", "1e3", "0x10", "60\n", "60 61",
    "9" * 30, "true", "default", "../../../../etc/passwd", "/etc/passwd", "..", ".", "a/b", "a\u0000b", "none\n",
    "none\u0000", "mq-deadline ", "../none", "\uff4e\uff4f\uff4e\uff45", "kernel.core_pattern", "vm.swappiness ",
    "vm.swappiness.", "VM.SWAPPINESS", "vm/swappiness", "vm.../kernel.core_pattern", "vm..swappiness",
    "vm.\u0455wappiness", "fs.xfs.xfssyncd_centisecs/../../../kernel/core_pattern", "|/tmp/x %p",
    "commit=30,context=x", "commit=30\ncontext=x", "commit=\u0663\u0660", "errors=panic", "usrjquota=/etc/passwd",
    "journal_path=/dev/vda", "device=/dev/vda", "subvol=../..", "loop", "bind", "remount",
    "compress=zlib:9,device=/dev/vda", "data=/etc", "stripe=../x", "discard", "commit=", "commit==", "suid",
    "nosuid,suid", "context=system_u:object_r:x:s0", "sync", "-d /etc", "-E root=/etc", "-J device=/dev/vda",
    "-l logdev=/dev/vda", "--rootdir /", "-b 4096 /dev/vda", "-b\u00a04096", "-b 4096\n/dev/vda",
    "-i \u0664\u0660\u0669\u0666", "-M", "-d single", "-n 4096", "-O encrypt", "-m 5 -d /etc", "-b 4096",
    "-i size=512", "-r /etc", "0777", "4777", "2755", "0o0o644", "6_4_4", "-0", "+644", " 644",
    "\u0660\u0666\u0664\u0664", "0o1777", "64 KiB", "1 \uff2b\uff49\uff22", "999 TiB", "1 B", "root",
    "unprivileged", "self", "nobody", "cold-system", "cold", "warm", "noatime", "ro", "rw", "ext4", "xfs", "btrfs",
    "ntfs", "regular", "symlink-absolute", "stale", "{file}", "{files}", "{dir}", "{a}", "{b}", "{}", "{{a}}",
    "PATH", "LD_PRELOAD", "A=B", "A B", "LD_LIBRARY_PATH", "vm.swappiness", "vm.dirty_ratio",
    "fs.xfs.xfssyncd_centisecs", "10", "200", "128",
)  # fmt: skip
values = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20))


#: accepted values of each knob, and the option that addresses it; a knob that is missing here only gets
#: hostile values
PLAUSIBLE: dict[str, tuple[tuple[str, ...], str]] = {
    "bdi.max_ratio": (("20", "100"), ""),
    "bdi.min_ratio": (("0", "10"), ""),
    "bdi.strict_limit": (("0", "1"), ""),
    "block.add_random": (("0", "1"), ""),
    "block.max_sectors_kb": (("64", "128"), ""),
    "block.nomerges": (("0", "2"), ""),
    "block.nr_requests": (("64", "128", "0128"), ""),
    "block.rotational": (("0", "1"), ""),
    "block.rq_affinity": (("1", "2"), ""),
    "block.stable_writes": (("0", "1"), ""),
    "block.write_cache": (("write back", "write through"), ""),
    "file.attribute": (("none", "sync"), ""),
    "memory.huge_pages": (("always", "madvise"), ""),
    "memory.limit": (("none", "64 MiB"), ""),
    "memory.lru_gen": (("on", "off", "0x0003"), ""),
    "process.cpu": (("any", "0"), ""),
    "process.io_priority": (("none", "idle"), ""),
    "process.nice": (("0", "5", "-5"), ""),
    "block.read_ahead_kb": (("0", "512"), ""),
    "block.scheduler": (("none", "mq-deadline", "../none", "x"), ""),
    "block.wbt_lat_usec": (("0", "2000"), ""),
    "cache.state": (("cold", "cold-system", "warm"), ""),
    "command.argument": (("-x", "{file}", "/etc/passwd"), "{a}"),
    "environment.variable": (("", "/etc", "a\nb"), "HOME"),
    "file.atime_state": (("stale", "fresh"), ""),
    "file.link": (("regular", "symlink-chain", "hardlink"), ""),
    "file.mode": (("0444", "0o1777", "7"), ""),
    "file.size": (("1 B", "10 KiB"), ""),
    "filesystem.type": (("ext4", "xfs", "btrfs"), ""),
    "mkfs.option": (("-b 1024", "-i  8192", "-m single", "-d agcount=4", "default"), ""),
    "mount.atime": (("noatime", "lazytime"), ""),
    "mount.option": (("commit=30", "discard", "compress=zlib:9", "default"), ""),
    "mount.readonly": (("ro", "rw"), ""),
    "process.user": (("root", "unprivileged", "self"), ""),
    "sysctl": (("50", "100"), "vm.swappiness"),
}


@st.composite
def some_settings(draw: st.DrawFn, *, hostile: str = "value") -> Setting:
    """Draw one setting. ``hostile``: which part of it is hostile ("value", "option", or neither)."""
    knob = registry.knobs()[draw(st.sampled_from(sorted(registry.knobs())))]
    known, option = PLAUSIBLE.get(knob.name, (HOSTILE, ""))
    value = draw(values if hostile == "value" else st.sampled_from(known))
    options: tuple[tuple[str, str], ...] = ()
    if hostile == "option":
        key = knob.option or draw(st.sampled_from(["key", "variable", "placeholder", "option"]))
        options = ((key, draw(values)),)
    elif knob.option is not None:
        options = ((knob.option, option),)
    return Setting(knob.name, value, options)


@st.composite
def hostile_studies(draw: st.DrawFn) -> Study:
    """Draw a shipped study with changed treatment, pinned knobs, work and lab, of which one part is hostile."""
    study = find("files/permissions")
    part = draw(st.sampled_from(["value", "option", "fixed", "lab", "command", "nothing"]))
    first = draw(some_settings(hostile=part))
    other = values if part == "value" else st.sampled_from(PLAUSIBLE.get(first.knob, (HOSTILE, ""))[0])
    levels = (Level("one", (first,)), Level("two", (replace(first, value=draw(other)),)))
    text = values if part == "command" else st.sampled_from(["{a}", "{dir}", "x"])
    work: Any = study.workloads[0].work
    if part == "command" or draw(st.booleans()):
        argv = tuple(draw(st.lists(text, max_size=3)))
        step = Step(draw(text), ("true", *argv))
        work = CommandWork(steps=(step,), files=2, size_bytes=4096, cwd=draw(text), stdin=draw(text))
    lab = LabSpec(kind="image", filesystem=draw(st.sampled_from(["ext4", "xfs", "btrfs"])))
    if part == "lab":
        lab = replace(
            lab,
            filesystem=draw(st.sampled_from(["ext4", "xfs", "../x", "ext4\n", "EXT4"])),
            mkfs_options=tuple(draw(st.lists(values, max_size=1))),
            mount_options=tuple(draw(st.lists(values, max_size=1))),
        )
    pinned = st.lists(some_settings(hostile="value" if part == "fixed" else ""), max_size=1)
    name = study.workloads[0].name
    return replace(
        study,
        name=draw(st.sampled_from(["x", "../../x", "/etc", ""])),
        lab=lab,
        factors=(Factor("f", Role.TREATMENT, levels, "one", ("one", "two")),),
        fixed=tuple(draw(pinned)),
        workloads=(Workload(name, "command" if isinstance(work, CommandWork) else "files", work),),
        responses=tuple(r for r in study.responses if r.workload == name and r.name in ("wall", "cpu")),
        claims=(),
        trusted=False,
    )


class Willing(Recording):
    """Recording that also runs commands, and accepts every kernel setting."""

    def __init__(self, *, isolate: bool, **_: object) -> None:
        super().__init__(isolate=isolate)
        self.written: dict[str, str] = {}

    def _write(self, path: str, data: str) -> None:
        self.written[path] = data

    def _read(self, path: str) -> dict[str, Any]:
        return {"data": self.written[path]} if path in self.written else super()._read(path)

    def _set_size(self, size: int, **_: Any) -> None:
        self.sizes = {str(size): 20}

    def _get_size(self, **_: Any) -> dict[str, Any]:
        return {"sizes": self.sizes}

    def _link(self, kind: str, **_: Any) -> None:
        self.kinds = {kind: 20}

    def _get_link(self, **_: Any) -> dict[str, Any]:
        return {"kinds": self.kinds}

    def _command(self, **fields: Any) -> dict[str, Any]:
        return {
            **self._files(**fields),
            "max_rss_bytes": 1,
            "steps": [],
            "stragglers": 0,
            "out": None,
            "failures": [],
        }


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "Probe", Willing)
    monkeypatch.setattr(session_module.MachineLock, "__enter__", lambda self: self)
    monkeypatch.setattr(session_module.MachineLock, "__exit__", lambda *_: None)


def paths(value: object) -> Iterator[str]:
    """Yield every text in the fields of a call that the kernel or a program could take for a path."""
    if isinstance(value, str):
        if "/" in value or value in (".", ".."):
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from paths(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from paths(inner)


def check_call(verb: str, fields: dict[str, Any], lab: str) -> None:
    """Raise AssertionError if a call leaves the lab."""
    if verb in READING:
        return
    # The removal of the lab's mount folder is made durable in the folder above it.
    if verb == "fsync" and fields == {"path": "/run"}:
        return
    # arguments of the user's own program are the user's affair; tools of the lab start in /
    program_fields = {"command": {"steps", "environment", "cwd", "stdin"}, "run": {"cwd"}}.get(verb, set())
    assert verb != "run" or fields.get("cwd", "/") == "/"
    if verb == "write":
        assert fields["data"].isascii()
        assert "\n" not in fields["data"]
    for path in paths({key: value for key, value in fields.items() if key not in program_fields}):
        place = path.replace(lab, "LAB")
        assert path in SYSCTLS or PLACES.fullmatch(place), (verb, path)
        assert path not in SYSCTLS or verb == "write", (verb, path)
    if verb == "run":
        assert fields["argv"][0] in TOOLS, fields["argv"]
        assert all(word.isascii() and word.isprintable() for word in fields["argv"]), fields["argv"]
    if verb == "mount":
        assert fields["type"] in {"ext4", "xfs", "btrfs", "tmpfs"}
        for option in fields["options"]:
            assert re.fullmatch(r"[A-Za-z0-9_:=-]+", option), option
            assert not FORBIDDEN_WORDS.fullmatch(option.partition("=")[0]) or option == "remount", option
    if verb == "command" and fields["user"] is None:
        raise AssertionError("an untrusted command as root")


def conducted(study: Study, state: Path, folder: Path) -> list[tuple[str, dict[str, Any]]] | None:
    """Return all calls that one round of the study makes on the target, including cleanup; None if refused."""
    try:
        resolved = resolve(study, root=True, lab="image")
    except IotrialError:
        return None
    plan = Plan(resolved.study, "0" * 32)
    session = Session(resolved, plan, state=state, folder=str(folder), trial="0" * 32)
    calls: list[tuple[str, dict[str, Any]]] = []
    try:
        session.open()
        calls = session.probe.calls  # type: ignore[attr-defined]
        runner = Runner(session, injected=1.06)
        for run in plan.block(plan.conditions[0], 0).runs:
            runner.run(plan.conditions[0], run, block=0)
    except IotrialError:
        pass  # refused by the recording: the calls before that count
    finally:
        session.close()
        for entry in session.journal.pending():
            session.journal.drop(entry)
    return calls


def _ran(calls: list[tuple[str, dict[str, Any]]]) -> bool:
    return any(verb in ("files", "command") for verb, _ in calls)


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(hostile_studies())
@pytest.mark.long
def test_no_study_makes_root_touch_anything_but_its_lab(
    monkeypatch_user: None, state: Path, tmp_path: Path, study: Study
) -> None:
    calls = conducted(study, state, tmp_path)
    event("refused" if calls is None else f"asked for a {'run' if _ran(calls) else 'lab'}")
    for verb, fields in calls or ():
        check_call(verb, fields, str(tmp_path))


@pytest.fixture
def monkeypatch_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as if by sudo, so that a command that does not run as the user would run as root."""
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")


@pytest.mark.parametrize("name", sorted(registry.knobs()))
def test_every_knob_refuses_or_tames_every_hostile_value(name: str) -> None:
    """Accepted values are plain: no path but the knob's own, no control character, no look-alike digit."""
    knob = registry.knobs()[name]
    texts = {"command.argument", "environment.variable"}  # any text, for the user's own program
    for value in HOSTILE:
        for option in (None,) if knob.option is None else (None, *HOSTILE):
            setting = Setting(
                name, value, () if option is None or knob.option is None else ((knob.option, option),)
            )
            try:
                parsed = knob.parse(setting)
            except IotrialError:
                continue
            if name == "program.path":  # set by the user, never by a study (test_database_kind.py)
                assert parsed == posixpath.normpath(parsed)
                assert parsed.startswith("/")
                assert parsed.isprintable()
                continue
            if name not in texts:
                assert parsed.isascii(), (value, parsed)
                assert parsed.isprintable(), (value, parsed)
                assert "/" not in parsed, (value, parsed)
                assert ".." not in parsed, (value, parsed)
                assert "," not in parsed or name == "mkfs.option", (value, parsed)
            if name == "file.mode":
                assert int(parsed, 8) <= 0o1777


def test_the_check_would_have_seen_a_path_outside(tmp_path: Path) -> None:
    outside = [
        ("write", {"path": "/proc/sys/kernel/core_pattern", "data": "x"}),
        ("write", {"path": "/run/iotrial/../etc/passwd", "data": "x"}),
        ("mount", {"source": "/dev/vda", "target": "/run/iotrial/ext4", "type": "ext4", "options": []}),
        (
            "mount",
            {
                "source": "/dev/loop9",
                "target": "/run/iotrial/ext4",
                "type": "ext4",
                "options": ["errors=panic"],
            },
        ),
        ("remove", {"path": "/etc", "recursive": True}),
        ("run", {"argv": ["mkfs.ext4", "-d", "/etc", "/dev/loop9"]}),
        ("run", {"argv": ["sh", "-c", "x"]}),
        ("fileset", {"dir": f"{tmp_path}/../x"}),
    ]
    for verb, fields in outside:
        with pytest.raises(AssertionError):
            check_call(verb, fields, str(tmp_path))
