"""Knobs of the process that does the work: nice value, I/O priority, CPU affinity.

They apply while the cache is prepared and the work is timed, to the probe and to every command it starts; then the probe
is reset. They use util-linux, because no file sets the nice value of a process.

Only a negative nice value needs root. But without root a process cannot take a higher one back (setpriority(2)), so there the
commands are started by nice(1), at every level alike, and the probe keeps its own.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import ClassVar

from iotrial.errors import KnobError, UnsupportedLevel
from iotrial.knobs import work as declared
from iotrial.knobs.knob import Knob, Requirement, RunContext, whole_number
from iotrial.study.model import Setting
from iotrial.study.places import EVERYWHERE

NICE_FIELD = 16  # field 19 of proc_pid_stat(5), counted from after the name


class ProcessKnob(Knob):
    """Noted in the draft of the work, applied when the work begins, reset when it has ended."""

    #: the default value of a process
    plain: ClassVar[str]

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(labs=EVERYWHERE, tools={self.tool: "util-linux"})

    tool: ClassVar[str]

    def read(self, subject: RunContext, setting: Setting) -> str:
        return subject.work.process.get(self.name, self.plain)

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        subject.work.process[self.name] = value

    def enter(self, subject: RunContext, setting: Setting, value: str) -> None:
        self._change(subject, value)

    def leave(self, subject: RunContext, setting: Setting) -> None:
        self._change(subject, self.plain)

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"{self.name} of the work itself, which may affect other processes: {', '.join(values)}",)

    @abstractmethod
    def argv(self, subject: RunContext, value: str, pid: str) -> list[str]:
        """Return the arguments that set the value."""

    @abstractmethod
    def found(self, subject: RunContext, pid: str) -> str:
        """Return the kernel's current value."""

    def _change(self, subject: RunContext, value: str) -> None:
        pid = subject.worker.read("/proc/self/stat").split(" ", 1)[0]
        done = subject.worker.run([self.tool, *self.argv(subject, value, pid)])
        found = self.found(subject, pid)
        if done.exit_status != 0 or found != self.wanted(subject, value):
            raise KnobError(
                self.name, "the probe", wrote=value, found=found, hint=done.stderr.strip()[-200:] or None
            )

    def wanted(self, subject: RunContext, value: str) -> str:
        """Return the value in the form that ``found`` returns."""
        return value


class ProcessNice(ProcessKnob, declared.ProcessNice):
    tool = "renice"
    plain = "0"

    def parse(self, setting: Setting) -> str:
        negative = setting.value.startswith("-")
        number = whole_number("knob process.nice", setting.value.removeprefix("-"), 0, 20 if negative else 19)
        return f"-{number}" if negative and number != "0" else number

    def requires(self, setting: Setting) -> Requirement:
        tools = {self.tool: "util-linux", "nice": "coreutils"}
        return Requirement(root=setting.value.startswith("-"), labs=EVERYWHERE, tools=tools)

    def enter(self, subject: RunContext, setting: Setting, value: str) -> None:
        if subject.worker.read("/proc/self/status").partition("\nUid:")[2].split()[1] == "0":
            super().enter(subject, setting, value)
            return
        now = self.found(subject, "")
        more = int(value) - int(now)
        if more < 0:
            raise UnsupportedLevel(
                f"knob process.nice: iotrial itself has niceness {now}, and without root {value} cannot be had",
            )
        subject.work.prefix = ("nice", "-n", str(more))

    def leave(self, subject: RunContext, setting: Setting) -> None:
        if subject.work.prefix:
            subject.work.prefix = ()
        else:
            super().leave(subject, setting)

    def argv(self, subject: RunContext, value: str, pid: str) -> list[str]:
        return ["-n", value, "-p", pid]

    def found(self, subject: RunContext, pid: str) -> str:
        fields = subject.worker.read("/proc/self/stat").rpartition(")")[2].split()
        return fields[NICE_FIELD] if len(fields) > NICE_FIELD else "nothing"


class ProcessIoPriority(ProcessKnob, declared.ProcessIoPriority):
    tool = "ionice"
    plain = "none"

    LEVELS = ("none", *(f"best-effort-{n}" for n in range(8)), "idle")

    def argv(self, subject: RunContext, value: str, pid: str) -> list[str]:
        if value in ("none", "idle"):
            return ["-c", {"none": "0", "idle": "3"}[value], "-p", pid]
        return ["-c", "2", "-n", value[-1], "-p", pid]

    def found(self, subject: RunContext, pid: str) -> str:
        text = subject.worker.run([self.tool, "-p", pid]).stdout.strip()
        known = re.fullmatch(r"(none|best-effort|idle)(?:: prio ([0-7]))?", text)
        if known is None:
            return text
        return f"best-effort-{known[2]}" if known[1] == "best-effort" else known[1]


class ProcessCpu(ProcessKnob, declared.ProcessCpu):
    tool = "taskset"
    plain = "any"

    def parse(self, setting: Setting) -> str:
        return "any" if setting.value == "any" else whole_number("knob process.cpu", setting.value, 0, 8191)

    def enter(self, subject: RunContext, setting: Setting, value: str) -> None:
        allowed = self.found(subject, "")
        subject.work.processors = allowed
        if value != "any" and value not in _numbers(allowed):
            raise UnsupportedLevel(
                f"knob process.cpu: this machine has no CPU {value}", hint=f"available: {allowed}"
            )
        super().enter(subject, setting, value)

    def argv(self, subject: RunContext, value: str, pid: str) -> list[str]:
        return ["-a", "-c", "-p", self.wanted(subject, value), pid]

    def found(self, subject: RunContext, pid: str) -> str:
        for line in subject.worker.read("/proc/self/status").split("\n"):
            if line.startswith("Cpus_allowed_list:"):
                return line.partition(":")[2].strip()
        return ""

    def wanted(self, subject: RunContext, value: str) -> str:
        return subject.work.processors if value == "any" else value


def _numbers(ranges: str) -> set[str]:
    """Parse a list of ranges such as "0-3,8"."""
    found: set[str] = set()
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found |= {str(n) for n in range(int(first), int(last or first) + 1)}
    return found
