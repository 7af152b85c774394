"""Knobs of memory: huge pages and Multi-Gen LRU for the whole machine, and a memory limit for the work of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from iotrial.errors import KnobError, TargetError, UnsupportedLevel
from iotrial.knobs import machine as declared
from iotrial.knobs.kernel_file import KernelFileKnob, chosen_word
from iotrial.knobs.knob import Knob, Requirement, RunContext, Undone, size_within
from iotrial.lab import cgroup
from iotrial.lab.journal import Entry
from iotrial.lab.objects.cgroup import LabCgroup
from iotrial.lab.target import Target
from iotrial.study.model import Setting
from iotrial.study.places import EVERYWHERE

HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
LRU_GEN = "/sys/kernel/mm/lru_gen/enabled"
MIN_FREE = "/proc/sys/vm/min_free_kbytes"
LEAST_LIMIT, MOST_LIMIT = 16 << 20, 1 << 50
_LRU_GEN_MASK = re.compile(r"0x000[0-7]")
PAGES = 65536  # the largest page size of any architecture: the kernel rounds a limit to whole pages


class MemoryHugePages(KernelFileKnob, declared.MemoryHugePages):
    requirement = Requirement(root=True, labs=EVERYWHERE)

    def levels(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        return tuple(word.strip("[]") for word in context.target.read(HUGE_PAGES).split())

    def paths(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        return (HUGE_PAGES,)

    def is_own(self, path: str, entry: Entry) -> bool:
        return path == HUGE_PAGES

    def shown(self, text: str) -> str:
        return chosen_word(text)

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "madvise"

    def identity(self, context: RunContext, setting: Setting, path: str) -> dict[str, str]:
        return {"min_free_kbytes": context.target.read_or_none(MIN_FREE) or ""}

    def undo(self, target: Target, entry: Entry) -> Undone:
        outcome = super().undo(target, entry)
        before = entry.identity.get("min_free_kbytes", "")
        if outcome is Undone.FOREIGN or not (before.isascii() and before.isdigit()):
            return outcome
        if target.read_or_none(MIN_FREE) != before:
            target.write(MIN_FREE, before)
            found = target.read(MIN_FREE)
            if found != before:
                raise KnobError(self.name, MIN_FREE, wrote=before, found=found)
            return Undone.RESTORED
        return outcome

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (
            f"transparent huge pages of this machine: {', '.join(values)}; vm.min_free_kbytes, which depends on "
            f"it, is restored",
        )


class MemoryLruGen(KernelFileKnob, declared.MemoryLruGen):
    requirement = Requirement(root=True, labs=EVERYWHERE)
    #: besides masks, what is commonly written to the file
    _BY_NAME: ClassVar[Mapping[str, str]] = {"on": "0x0007", "y": "0x0007", "off": "0x0000", "n": "0x0000"}

    def parse(self, setting: Setting) -> str:
        value = self._BY_NAME.get(setting.value, setting.value)
        if re.fullmatch(r"[0-7]", value):
            value = f"0x000{value}"
        if not _LRU_GEN_MASK.fullmatch(value):
            raise UnsupportedLevel(f'knob {self.name}: found "{setting.value}"', hint=self.open_levels)
        return value

    def paths(self, context: RunContext, setting: Setting) -> tuple[str, ...]:
        return (LRU_GEN,)

    def is_own(self, path: str, entry: Entry) -> bool:
        return path == LRU_GEN

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"Multi-Gen LRU of this machine: {', '.join(values)}",)


class MemoryLimit(Knob, declared.MemoryLimit):
    requirement = Requirement(root=True, labs=EVERYWHERE)

    def parse(self, setting: Setting) -> str:
        if setting.value == "none":
            return "none"
        text = "none, or multiples of 64 KiB from 16 MiB: the probe itself needs some memory"
        return str(size_within(self.name, setting.value, LEAST_LIMIT, MOST_LIMIT, text, multiple_of=PAGES))

    def read(self, context: RunContext, setting: Setting) -> str:
        return context.work.memory_limit

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        context.work.memory_limit = value

    def prepare(self, context: RunContext, setting: Setting, values: tuple[str, ...]) -> None:
        home = cgroup.find(context.worker)
        for value in dict.fromkeys(values):
            group = home.group(context.trial, value)
            LabCgroup().make(
                context.worker, context.journal, group, boot_id=context.boot_id, trial=context.trial
            )
            if value != "none":
                context.worker.write(f"{group}/{home.limit_file}", value)
            self._check(context, home, value)

    def enter(self, context: RunContext, setting: Setting, value: str) -> None:
        home = cgroup.find(context.worker)
        self._check(context, home, value)
        context.work.home = home
        self._move(context, home.group(context.trial, value))

    def leave(self, context: RunContext, setting: Setting) -> None:
        if context.work.home is not None:
            self._move(context, context.work.home.folder)
            context.work.home = None

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return ("control groups next to or below the one of iotrial, removed at the end",)

    def _check(self, context: RunContext, home: cgroup.Home, value: str) -> None:
        group = home.group(context.trial, value)
        found = home.limit(context.worker, group)
        if found != value:
            raise KnobError(self.name, f"{group}/{home.limit_file}", wrote=value, found=found)

    def _move(self, context: RunContext, folder: str) -> None:
        try:
            context.worker.write(f"{folder}/cgroup.procs", "0")  # 0: the writing process, which is the probe
        except TargetError as error:
            raise KnobError(
                self.name, folder, wrote="moving the probe into it", found="refused", hint=error.message
            ) from error
        found = cgroup.find(context.worker, anywhere=True).folder
        if found != folder:
            raise KnobError(self.name, folder, wrote="moving the probe into it", found=f"it is in {found}")
