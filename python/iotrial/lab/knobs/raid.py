"""Knobs of an array of a guest's disks: how it is made (level, chunk, bitmap), and its stripe cache."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from iotrial.errors import KnobError, RequestError, TargetError, UnsupportedLevel
from iotrial.lab.guest import array
from iotrial.lab.guest.array import ArrayPlace
from iotrial.lab.knob import (
    Consequence,
    Knob,
    Requirement,
    Scope,
    Stage,
    Subject,
    at_risk,
    harmless,
    one_of,
    size_within,
    trade_off,
    whole_number,
)
from iotrial.study.model import Setting
from iotrial.units import format_size

_GUEST = frozenset({"guest"})
_MD = array.MAKERS["md"].tools
_LEAST_CHUNK, _MOST_CHUNK = 4 << 10, 64 << 20


class ArrayKnob(Knob):
    """Something with which the array is made: a wish until the next making of the file system, and read back from md."""

    stage = Stage.FORMAT
    scope = Scope.DEVICE
    about: str

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=True, labs=_GUEST, tools=_MD)

    def read(self, subject: Subject, setting: Setting) -> str:
        return array_of(self.name, subject).found(self.about)

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        array_of(self.name, subject).want_array(self.about, value)


class RaidMaker(ArrayKnob):
    """Who joins the disks: md, btrfs (for its own file system), or the device mapper with stripes as LVM has it make them."""

    name = "raid.maker"
    title = "what joins the guest's disks: md, btrfs, or LVM's stripes"
    consequence = harmless("what is kept when a disk fails is decided by the level")
    about = "maker"
    LEVELS = tuple(array.MAKERS)

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS

    def requires(self, setting: Setting) -> Requirement:
        maker = array.MAKERS[self.parse(setting)]
        return Requirement(root=True, labs=_GUEST, tools=maker.tools, modules=frozenset(maker.modules))


class RaidLevel(ArrayKnob):
    """raid0, raid1, raid4, raid5, raid6 or raid10."""

    name = "raid.level"
    title = "level of the array that the guest's disks are joined to"
    consequence = trade_off(
        "a disk may fail; a power cut and a missing disk together may corrupt data that nobody was writing (write hole)"
    )
    consequences: Mapping[str, Consequence] = {
        "raid0": at_risk("nothing is kept twice: the failure of any disk loses all data"),
        "raid1": harmless("every disk holds all data"),
        "raid10": harmless("everything is on two disks"),
    }
    about = "level"
    LEVELS = tuple(array.LEVELS)

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS

    def requires(self, setting: Setting) -> Requirement:
        module = array.LEVELS[self.parse(setting)].module
        return Requirement(root=True, labs=_GUEST, tools=_MD, modules=frozenset({module}))


class RaidChunk(ArrayKnob):
    """How many bytes lie side by side on one disk."""

    name = "raid.chunk"
    title = "chunk of the array: so much lies together on one disk"
    consequence = harmless("how data are spread over the disks")
    about = "chunk"
    open_levels = "4 KiB to 64 MiB, powers of two (raid1 has none)"

    def parse(self, setting: Setting) -> str:
        return format_size(
            size_within(self.name, setting.value, _LEAST_CHUNK, _MOST_CHUNK, self.open_levels, power=True)
        )

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ()


class RaidBitmap(ArrayKnob):
    """Whether writes are noted beforehand, so that after a crash not all has to be compared."""

    name = "raid.bitmap"
    title = "write-intent bitmap of the array"
    consequence = harmless("after a crash only what was being written is resynchronised")
    consequences: Mapping[str, Consequence] = {
        "none": trade_off(
            "after a crash the whole array is resynchronised, and until then its copies or parity may disagree"
        ),
    }
    about = "bitmap"
    LEVELS = array.BITMAPS

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS


class RaidState(ArrayKnob):
    """Whole, or without its last disk."""

    name = "raid.state"
    title = "whether the array has all of its disks, or lacks one"
    consequence = harmless("the array has all its disks")
    consequences: Mapping[str, Consequence] = {
        "degraded": at_risk("a disk is missing: the next one that fails may take all data with it"),
    }
    about = "state"
    LEVELS = array.STATES

    def parse(self, setting: Setting) -> str:
        return one_of(self.name, setting.value, self.LEVELS)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return self.LEVELS


class RaidStripeCache(Knob):
    """Pages for each disk in which raid4, 5 and 6 collect what belongs together."""

    name = "raid.stripe_cache"
    title = "entries of the stripe cache of raid4, raid5 and raid6"
    consequence = trade_off("takes a page of memory for each entry and disk")
    stage = Stage.DEVICE
    scope = Scope.DEVICE
    open_levels = "17 to 32768"

    def parse(self, setting: Setting) -> str:
        return whole_number(f"knob {self.name}", setting.value, 17, 32768)

    def levels(self, subject: Subject, setting: Setting) -> tuple[str, ...]:
        return ()

    def requires(self, setting: Setting) -> Requirement:
        return Requirement(root=True, labs=_GUEST, tools=_MD)

    def neutral(self, setting: Setting, levels: tuple[str, ...]) -> str:
        return "256"

    def read(self, subject: Subject, setting: Setting) -> str:
        return self._ask(subject).strip()

    def write(self, subject: Subject, setting: Setting, value: str) -> None:
        self._ask(subject)
        path = array_of(self.name, subject).file("stripe_cache_size")
        try:
            subject.target.write(path, value)
        except TargetError as error:
            found = self.read(subject, setting)
            raise KnobError(self.name, path, wrote=value, found=found, hint=error.message) from error

    def _ask(self, subject: Subject) -> str:
        place = array_of(self.name, subject)
        try:
            return subject.target.read(place.file("stripe_cache_size"))
        except TargetError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
            raise UnsupportedLevel(
                f"knob {self.name}: {place.label} has no stripe cache",
                hint="raid4, raid5 and raid6 have one: fix raid.level to one of these",
            ) from error


def array_of(knob: str, subject: Subject) -> ArrayPlace:
    """The array that a knob acts on. Raises RequestError where the lab has none."""
    if isinstance(subject.place, ArrayPlace):
        return subject.place
    raise RequestError(
        f"knob {knob}: this lab has one disk and no array", hint="add `disks = 4` to [lab], of kind guest"
    )
