"""Knobs of files: permission bits, size, kind of link, access times, attributes from an allow-list (chattr(1)); their layout
on the disk is applied by ``iotrial.lab.knobs.layout``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from iotrial.errors import KnobError, UnsupportedLevel
from iotrial.knobs.declaration import HARMLESS, Consequence, Declaration, Scope, Stage, trade_off
from iotrial.knobs.knob import Knob, Requirement, RunContext, size_within
from iotrial.study.model import Setting
from iotrial.study.places import DISK_LABS
from iotrial.study.work import C_SIZES, C_UNIT, Work

if TYPE_CHECKING:
    from iotrial.lab.target import Finished

VIEW = "view"
MAXIMUM_SIZE = 4 << 30
OCTAL = re.compile(r"(?:0o)?[0-7]{1,5}")
SET_ID = ~0o1777
PERCENT = re.compile(r"([0-9]{1,3}) ?%")
#: paths per call of a tool
BATCH = 1000


class FileMode(Knob):
    """Permission bits, set by chmod(2)."""

    name = "file.mode"
    title = "permission bits of the files, as octal text"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 2
    open_levels = "0000 to 1777"
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "writable by others": trade_off("every user of the machine may change the files"),
        "writable by the group": trade_off("the group may change the files"),
    }

    def consequence_of(self, setting: Setting) -> Consequence:
        _, group, others = (digit in "2367" for digit in setting.value.strip().zfill(3)[-3:])
        if others or group:
            return self.consequences["writable by others" if others else "writable by the group"]
        return self.consequence

    def parse(self, setting: Setting) -> str:
        if not OCTAL.fullmatch(setting.value):
            raise UnsupportedLevel(
                f'knob file.mode: "{setting.value}" is not a file mode',
                hint='write octal digits, for example "0644"',
            )
        mode = int(setting.value.removeprefix("0o"), 8)
        if mode & SET_ID:
            raise UnsupportedLevel(
                f'knob file.mode: "{setting.value}" has setuid or setgid bits',
                hint="the files belong to root, and others could write to them: the maximum is 1777",
            )
        return f"{mode:04o}"

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "0000"

    def read(self, context: RunContext, setting: Setting) -> str:
        files = context.selection(self.name)
        return _only(self.name, context.worker.call("get_mode", set=files.set, files=files.wire)["modes"])

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        files = context.selection(self.name)
        context.worker.call("set_mode", set=files.set, files=files.wire, mode=value)


class FileSize(Knob):
    """Size of each file. As a condition, every size has its own file set; as a treatment, the files are rewritten."""

    name = "file.size"
    title = "size of each file"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = -3
    open_levels = "1 B to 4 GiB"
    consequence = HARMLESS

    def parse(self, setting: Setting) -> str:
        return str(size_within(self.name, setting.value, 1, MAXIMUM_SIZE, self.open_levels))

    def suits(self, setting: Setting, work: Work, bytes_each: int) -> None:
        size = int(self.parse(setting))
        if work.content == "c" and size % C_UNIT:
            raise UnsupportedLevel(
                f"knob file.size: C sources of {size:,} bytes would end inside a function", hint=C_SIZES
            )

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "1"

    def read(self, context: RunContext, setting: Setting) -> str:
        files = context.selection(self.name)
        return _only(self.name, context.worker.call("get_size", set=files.set, files=files.wire)["sizes"])

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        files = context.selection(self.name)
        context.worker.call("set_size", set=files.set, files=files.wire, size=int(value))


class FileLink(Knob):
    """The kind of name through which the work reaches the files; re-created from the plain files in every run."""

    name = "file.link"
    title = "kind of name through which the work opens the files"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 1
    consequence = HARMLESS

    LEVELS = ("regular", "symlink-absolute", "symlink-relative", "symlink-chain", "hardlink")
    CHAIN = 4

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "none"

    def read(self, context: RunContext, setting: Setting) -> str:
        files = context.selection(self.name)
        if context.work.view is None:
            return "none"
        kinds = context.worker.call("get_link", set=files.set, files=files.wire, view=VIEW)["kinds"]
        return _only(self.name, kinds)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        files = context.selection(self.name)
        context.worker.call("unlink", set=files.set, view=VIEW)
        context.work.view = None
        if value != "none":
            context.worker.call(
                "link", set=files.set, files=files.wire, view=VIEW, kind=value, chain=self.CHAIN
            )
            context.work.view = VIEW


class FileAtimeState(Knob):
    """The state of the access time before a run, which decides whether relatime updates it."""

    name = "file.atime_state"
    title = "access time before the run: stale (relatime will update), fresh (it will not), day-old"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 3  # last: links and modes change ctime, which relatime compares with
    consequence = HARMLESS

    LEVELS = ("stale", "fresh", "day-old")

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "day-old"

    def read(self, context: RunContext, setting: Setting) -> str:
        files = context.selection(self.name)
        states = context.worker.call("get_atime_state", set=files.set, files=files.wire)["states"]
        return _only(self.name, states)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        files = context.selection(self.name)
        context.worker.call(
            "set_atime_state", set=files.set, files=files.wire, state=value, view=context.work.view
        )


class FileRewritten(Knob):
    """The share of the files that were rewritten since they were last read: their mtime is newer than their atime. The others
    look as after an earlier read. Relatime checks nothing else, so only the timestamps are set."""

    name = "file.rewritten"
    title = "share of files rewritten since the last read: with relatime, only their next read updates the access time"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 3
    open_levels = "0 % to 100 %"
    consequence = HARMLESS

    def parse(self, setting: Setting) -> str:
        found = PERCENT.fullmatch(setting.value)
        if found is None or int(found[1]) > 100:
            raise UnsupportedLevel(
                f'knob file.rewritten: "{setting.value}" is not a whole percentage', hint='for example "10 %"'
            )
        return f"{int(found[1])} %"

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "100 %"

    def suits(self, setting: Setting, work: Work, bytes_each: int) -> None:
        percent = int(self.parse(setting).removesuffix(" %"))
        if work.files * percent % 100:
            raise UnsupportedLevel(
                f"knob file.rewritten: {percent} % of {work.files} files is not a whole number of files",
            )

    def read(self, context: RunContext, setting: Setting) -> str:
        files = context.selection(self.name)
        states = context.worker.call("get_atime_state", set=files.set, files=files.wire)["states"]
        stale = states.get("stale", 0)
        if stale + states.get("fresh", 0) != files.count:
            return _only(self.name, states)
        return f"{100 * stale / files.count:g} %"

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        files = context.selection(self.name)
        percent = int(value.removesuffix(" %"))
        chosen = range(files.count) if files.indices is None else files.indices
        spread = {n for n in range(files.count) if (n + 1) * percent // 100 > n * percent // 100}
        for state, those in (
            ("fresh", [index for n, index in enumerate(chosen) if n not in spread]),
            ("stale", [index for n, index in enumerate(chosen) if n in spread]),
        ):
            context.worker.call(
                "set_atime_state", set=files.set, files=those, state=state, view=context.work.view
            )


class FileAttribute(Knob):
    """An attribute set on each file: no access time updates, synchronous writes, or data journaling."""

    name = "file.attribute"
    title = "an attribute of the files: none, no-atime (A), sync (S), journal-data (j, ext4)"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = 2
    LEVELS = ("none", "no-atime", "sync", "journal-data")
    consequence = HARMLESS
    consequences: Mapping[str, Consequence] = {
        "sync": trade_off("every write waits for the disk"),
        "journal-data": trade_off("data are written twice: to the journal, then in place"),
        "no-atime": HARMLESS,
    }

    requirement = Requirement(root=True, labs=DISK_LABS, tools={"chattr": "e2fsprogs", "lsattr": "e2fsprogs"})
    LETTERS: ClassVar[dict[str, str]] = {"none": "", "no-atime": "A", "sync": "S", "journal-data": "j"}

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "none"

    def read(self, context: RunContext, setting: Setting) -> str:
        found: dict[str, int] = {}
        for paths in _batches(context):
            done = self._run(context, ["lsattr", "-d", *paths])
            for line in done.stdout.splitlines():
                letters = "".join(c for c in line.split(" ", 1)[0] if c in "ASj")
                found[letters] = found.get(letters, 0) + 1
        if len(found) == 1:
            (letters,) = found
            return next((value for value, known in self.LETTERS.items() if known == letters), letters)
        return (
            ", ".join(f"{letters or 'none'} ({n} files)" for letters, n in sorted(found.items())) or "no file"
        )

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        letter = self.LETTERS[value]
        words = [f"-{''.join(c for c in 'ASj' if c != letter)}", *([f"+{letter}"] if letter else [])]
        for paths in _batches(context):
            done = self._run(context, ["chattr", *words, *paths])
            if done.exit_status != 0:
                raise KnobError(
                    self.name,
                    context.place.label,
                    wrote=value,
                    found="refused",
                    hint=done.stderr.strip()[-200:],
                )

    def _run(self, context: RunContext, argv: list[str]) -> Finished:
        return context.worker.run(argv, timeout_s=300)


class FileFragmentation(Declaration):
    """Files rewritten into a given number of extents, with the same content; counted with FIEMAP."""

    name = "file.fragmentation"
    title = "fragmentation, (extents - files) / extents: 0 % unfragmented, 99 % a hundred pieces per file"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = -2  # after the size, before links: another name does not change the layout
    open_levels = "0 % to 99.99 %"
    consequence = HARMLESS


class FileDefragment(Declaration):
    """The remedy applied to the layout of the files before the run: none, the file system's own defragmenter, or a copy of
    each that replaces it. In every arm the files are then copied once more, and these copies are discarded."""

    name = "file.defragment"
    title = "what is done about fragmentation: nothing, the file system's defragmentation tool, or a rewritten copy"
    stage = Stage.FILES
    scope = Scope.FILES
    rank = -1
    LEVELS = ("untouched", "defragmented", "rewritten")
    consequence = HARMLESS


def _only(knob: str, counts: dict[str, int]) -> str:
    """Return the value that all files share, or a summary of the counts if they differ."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({count} files)" for value, count in sorted(counts.items())) or f"no {knob}"


def _batches(context: RunContext) -> Iterator[list[str]]:
    """Yield the paths of a run's files in batches. Uses the path in the view if the view holds regular files."""
    selection = context.selection(FileAttribute.name)
    files = context.place.sets[selection.set]
    folder = files.folder
    first = _name((selection.indices or (0,))[0], files.directories)
    seen = f"{folder}.{context.work.view}/{first}"
    if context.work.view is not None and context.worker.stat(seen)["kind"] == "file":
        # a hard link works as well as the original name
        folder = f"{folder}.{context.work.view}"
    indices = range(files.count) if selection.indices is None else selection.indices
    paths = [f"{folder}/{_name(index, files.directories)}" for index in indices]
    for start in range(0, len(paths), BATCH):
        yield paths[start : start + BATCH]


def _name(index: int, directories: int) -> str:
    """Return the file name, as the probe's protocol defines it."""
    return f"f{index:06d}" if directories <= 1 else f"d{index % directories:03d}/f{index:06d}"
