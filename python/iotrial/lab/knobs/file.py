"""Knobs of files: permission bits, size, kind of link, state of the access time."""

from __future__ import annotations

import re

from iotrial.errors import UnsupportedLevel
from iotrial.knobs import files as declared
from iotrial.knobs.knob import Knob, RunContext, size_within
from iotrial.study.model import Setting
from iotrial.study.work import C_SIZES, C_UNIT, Work

VIEW = "view"
MAXIMUM_SIZE = 4 << 30
OCTAL = re.compile(r"(?:0o)?[0-7]{1,5}")
SET_ID = ~0o1777
PERCENT = re.compile(r"([0-9]{1,3}) ?%")


def _only(knob: str, counts: dict[str, int]) -> str:
    """Return the value that all files share, or a summary of the counts if they differ."""
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{value} ({count} files)" for value, count in sorted(counts.items())) or f"no {knob}"


class FileMode(Knob, declared.FileMode):
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

    def read(self, subject: RunContext, setting: Setting) -> str:
        files = subject.selection(self.name)
        return _only(self.name, subject.worker.call("get_mode", set=files.set, files=files.wire)["modes"])

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        files = subject.selection(self.name)
        subject.worker.call("set_mode", set=files.set, files=files.wire, mode=value)


class FileSize(Knob, declared.FileSize):
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

    def read(self, subject: RunContext, setting: Setting) -> str:
        files = subject.selection(self.name)
        return _only(self.name, subject.worker.call("get_size", set=files.set, files=files.wire)["sizes"])

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        files = subject.selection(self.name)
        subject.worker.call("set_size", set=files.set, files=files.wire, size=int(value))


class FileLink(Knob, declared.FileLink):
    LEVELS = ("regular", "symlink-absolute", "symlink-relative", "symlink-chain", "hardlink")
    CHAIN = 4

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "none"

    def read(self, subject: RunContext, setting: Setting) -> str:
        files = subject.selection(self.name)
        if subject.work.view is None:
            return "none"
        kinds = subject.worker.call("get_link", set=files.set, files=files.wire, view=VIEW)["kinds"]
        return _only(self.name, kinds)

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        files = subject.selection(self.name)
        subject.worker.call("unlink", set=files.set, view=VIEW)
        subject.work.view = None
        if value != "none":
            subject.worker.call(
                "link", set=files.set, files=files.wire, view=VIEW, kind=value, chain=self.CHAIN
            )
            subject.work.view = VIEW


class FileAtimeState(Knob, declared.FileAtimeState):
    LEVELS = ("stale", "fresh", "day-old")

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "day-old"

    def read(self, subject: RunContext, setting: Setting) -> str:
        files = subject.selection(self.name)
        states = subject.worker.call("get_atime_state", set=files.set, files=files.wire)["states"]
        return _only(self.name, states)

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        files = subject.selection(self.name)
        subject.worker.call(
            "set_atime_state", set=files.set, files=files.wire, state=value, view=subject.work.view
        )


class FileRewritten(Knob, declared.FileRewritten):
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

    def read(self, subject: RunContext, setting: Setting) -> str:
        files = subject.selection(self.name)
        states = subject.worker.call("get_atime_state", set=files.set, files=files.wire)["states"]
        stale = states.get("stale", 0)
        if stale + states.get("fresh", 0) != files.count:
            return _only(self.name, states)
        return f"{100 * stale / files.count:g} %"

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        files = subject.selection(self.name)
        percent = int(value.removesuffix(" %"))
        chosen = range(files.count) if files.indices is None else files.indices
        spread = {n for n in range(files.count) if (n + 1) * percent // 100 > n * percent // 100}
        for state, those in (
            ("fresh", [index for n, index in enumerate(chosen) if n not in spread]),
            ("stale", [index for n, index in enumerate(chosen) if n in spread]),
        ):
            subject.worker.call(
                "set_atime_state", set=files.set, files=those, state=state, view=subject.work.view
            )
