"""The frequency governor of the processors: one file for each, all with the same value."""

from __future__ import annotations

import re

from iotrial.errors import UnsupportedLevel
from iotrial.knobs import machine as declared
from iotrial.lab.journal import Entry
from iotrial.lab.knob import Requirement, RunContext
from iotrial.lab.knobs.setting import KernelFileKnob
from iotrial.study.model import Setting
from iotrial.study.places import EVERYWHERE

CPUS = "/sys/devices/system/cpu"
_CPU = re.compile(r"cpu[0-9]{1,5}", re.ASCII)
_FILE = re.compile(rf"{CPUS}/cpu[0-9]{{1,5}}/cpufreq/scaling_governor", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,14}", re.ASCII)


class CpuGovernor(KernelFileKnob, declared.CpuGovernor):
    def parse(self, setting: Setting) -> str:
        if not _NAME.fullmatch(setting.value):
            raise UnsupportedLevel(f'knob {self.name}: "{setting.value}" is not the name of a governor')
        return setting.value

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        first = self.paths(subject, setting)[0].rpartition("/")[0]
        return tuple(subject.target.read(f"{first}/scaling_available_governors").split())

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=True, labs=EVERYWHERE)

    def paths(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        names = filter(_CPU.fullmatch, subject.target.call("list", path=CPUS)["names"])
        found = [f"{CPUS}/{name}/cpufreq/scaling_governor" for name in sorted(names)]
        there = tuple(path for path in found if subject.target.exists(path))
        if not there:
            raise UnsupportedLevel(
                f"knob {self.name}: the processors of this machine have no governor",
                hint="in a virtual machine the host controls it; omit the factor",
            )
        return there

    def is_own(self, path: str, entry: Entry) -> bool:
        return _FILE.fullmatch(path) is not None

    def changes(self, setting: Setting, values: tuple[str, ...]) -> tuple[str, ...]:
        return (f"frequency governor of all processors: {', '.join(values)}",)
