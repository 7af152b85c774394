"""The place of a run as a factor. Its levels are names of places declared by the study, never folders or devices."""

from __future__ import annotations

import re

from iotrial.errors import KnobError, UnsupportedLevel
from iotrial.knobs import machine as declared
from iotrial.lab.disk import DiskPlace
from iotrial.lab.knob import Knob, RunContext
from iotrial.study.model import Setting

NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")


class LabDevice(Knob, declared.LabDevice):
    def parse(self, setting: Setting) -> str:
        if not NAME.fullmatch(setting.value):
            raise UnsupportedLevel(
                f'knob {self.name}: "{setting.value}" is not the name of a place',
                hint="a level is the name of a [[place]] of the study; --place NAME=FOLDER sets its location",
            )
        return setting.value

    def levels(self, subject: RunContext, setting: Setting) -> tuple[str, ...]:
        return ()

    def read(self, subject: RunContext, setting: Setting) -> str:
        return subject.place.site

    def write(self, subject: RunContext, setting: Setting, value: str) -> None:
        """Do nothing: the run is given its place as a whole."""

    def verify(self, subject: RunContext, setting: Setting, value: str) -> None:
        super().verify(subject, setting, value)
        place = subject.place
        if not isinstance(place, DiskPlace):
            return
        info = subject.target.mount_at(place.root)
        if info is None or info.source != place.source:
            raise KnobError(self.name, place.root, wrote=value, found=info.source if info else "no mount")
