"""Knobs of an array of a guest's disks: maker, level, chunk, bitmap, degraded state, and stripe cache."""

from __future__ import annotations

import errno

from iotrial.errors import KnobError, RequestError, TargetError, UnsupportedLevel
from iotrial.guest import array
from iotrial.guest.array import ArrayPlace
from iotrial.knobs import array as declared
from iotrial.knobs.knob import Knob, Requirement, RunContext, size_within, whole_number
from iotrial.study.model import Setting
from iotrial.study.places import GUESTS
from iotrial.units import format_size

_MD = array.MAKERS["md"].tools
_LEAST_CHUNK, _MOST_CHUNK = 4 << 10, 64 << 20


class ArrayKnob(Knob):
    """A property with which the array is created: requested for the next mkfs, and read back from the kernel."""

    requirement = Requirement(root=True, labs=GUESTS, tools=_MD)
    about: str

    def read(self, context: RunContext, setting: Setting) -> str:
        return array_of(self.name, context).found(self.about)

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        array_of(self.name, context).want_array(self.about, value)


class RaidMaker(ArrayKnob, declared.RaidMaker):
    about = "maker"
    LEVELS = tuple(array.MAKERS)

    def requires(self, setting: Setting) -> Requirement:
        maker = array.MAKERS[self.parse(setting)]
        return Requirement(root=True, labs=GUESTS, tools=maker.tools, modules=frozenset(maker.modules))


class RaidLevel(ArrayKnob, declared.RaidLevel):
    about = "level"
    LEVELS = tuple(array.LEVELS)

    def requires(self, setting: Setting) -> Requirement:
        module = array.LEVELS[self.parse(setting)].module
        return Requirement(root=True, labs=GUESTS, tools=_MD, modules=frozenset({module}))


class RaidChunk(ArrayKnob, declared.RaidChunk):
    about = "chunk"

    def parse(self, setting: Setting) -> str:
        return format_size(
            size_within(self.name, setting.value, _LEAST_CHUNK, _MOST_CHUNK, self.open_levels, power=True)
        )


class RaidBitmap(ArrayKnob, declared.RaidBitmap):
    about = "bitmap"
    LEVELS = array.BITMAPS


class RaidState(ArrayKnob, declared.RaidState):
    about = "state"
    LEVELS = array.STATES


class RaidStripeCache(Knob, declared.RaidStripeCache):
    requirement = Requirement(root=True, labs=GUESTS, tools=_MD)

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, array.LEAST_STRIPES, 32768)

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "256"

    def read(self, context: RunContext, setting: Setting) -> str:
        return self._ask(context).strip()

    def write(self, context: RunContext, setting: Setting, value: str) -> None:
        self._ask(context)
        path = array_of(self.name, context).file("stripe_cache_size")
        try:
            context.target.write(path, value)
        except TargetError as error:
            found = self.read(context, setting)
            raise KnobError(self.name, path, wrote=value, found=found, hint=error.message) from error

    def _ask(self, context: RunContext) -> str:
        place = array_of(self.name, context)
        try:
            return context.target.read(place.file("stripe_cache_size"))
        except TargetError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
            raise UnsupportedLevel(
                f"knob {self.name}: {place.label} has no stripe cache",
                hint="raid4, raid5 and raid6 have one: set raid.level to one of these",
            ) from error


def array_of(knob: str, context: RunContext) -> ArrayPlace:
    """Return the array that a knob acts on. Raises RequestError if the lab has none."""
    if isinstance(context.place, ArrayPlace):
        return context.place
    raise RequestError(
        f"knob {knob}: this lab has one disk and no array", hint="add `disks = 4` to [lab], of kind guest"
    )
