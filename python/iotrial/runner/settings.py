"""Settings that outlive the conductor: journaled before the first write and tried out; unvaried ones are pinned.

Changing the scheduler changes other settings of the queue; these are rewritten and read back after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress

from iotrial.errors import KnobError, LabError, SettingChanged, TargetError, UnsupportedLevel
from iotrial.knobs.block import NR_REQUESTS, BlockScheduler, pinned
from iotrial.knobs.declaration import Stage
from iotrial.knobs.kernel_file import KernelFileKnob
from iotrial.knobs.knob import RunContext
from iotrial.lab import registry
from iotrial.lab.device import DevicePlace
from iotrial.lab.disk import DiskPlace
from iotrial.lab.in_place import InPlace
from iotrial.lab.machine.others import suspects
from iotrial.lab.place import Place
from iotrial.runner.resolve import KnobSetting, Resolved
from iotrial.runner.today import TodaysValue, todays_values
from iotrial.study.model import DesignKind, Setting


class Settings:
    """The settings of one trial. ``context_of`` returns what knobs act on, for a place."""

    def __init__(self, resolved: Resolved, context_of: Callable[[Place], RunContext]) -> None:
        self._resolved = resolved
        self._context_of = context_of
        #: By name of the place.
        self._pins: dict[str, tuple[KnobSetting, ...]] = {}
        #: what the last run has set that other programs can change, and on what
        self._applied: tuple[RunContext, tuple[KnobSetting, ...]] | None = None
        #: today's value of each setting on trial that is the user's own
        self.today: tuple[TodaysValue, ...] = ()

    def pinned(self) -> Mapping[str, str]:
        """Return the pinned values by knob name; where places differ, by place and knob name."""
        found: dict[str, str] = {}
        for place, settings in self._pins.items():
            for setting in settings:
                name = setting.knob.name
                found[name if found.get(name, setting.value) == setting.value else f"{place} {name}"] = (
                    setting.value
                )
        return found

    def settle(self, places: Iterable[Place], extra: Iterable[Place] = ()) -> None:
        """Journal everything that outlives the conductor, then pin what the study does not vary.

        ``extra``: places where no run happens, so nothing is varied there.
        """
        for place in extra:
            self._settle_apart(place)
        every = [t for settings in self._resolved.settings.values() for t in settings] + list(
            self._resolved.pinned
        )
        varied = [t for t in every if t.knob.stage in (Stage.HOST, Stage.DEVICE)]
        taken = {t.knob.name for t in varied}
        # Record the scheduler last, so that it is restored first: changing it changes the others.
        for place in places:
            context = self._context_of(place)
            self.today = self.today or todays_values(self._resolved.study, self._resolved.lab, context)
            if isinstance(place, DiskPlace | InPlace):
                settings = pinned(place, scheduler_varies=BlockScheduler.name in taken)
                self._pins[place.name] = tuple(_pin(s) for s in settings if s.knob not in taken)
                if isinstance(place, DiskPlace) and place.log is not None:
                    self._settle_apart(place.log)
            for setting in sorted(
                (*varied, *self._pins.get(place.name, ())), key=lambda t: t.knob.name == BlockScheduler.name
            ):
                self._record(context, setting)
            if isinstance(place, DevicePlace | InPlace) and BlockScheduler.name in taken:
                self._pin_a_length_for_all_schedulers(context)
            self.repin(place)
            self._try_out(context, varied)
            for setting in every:
                if setting.knob.stage is Stage.WORK or (
                    isinstance(place, InPlace) and setting.knob.stage is Stage.MOUNT
                ):
                    setting.knob.prepare(context, setting.declared, setting.values)

    def _settle_apart(self, place: Place) -> None:
        """Pin the queue of a device that no factor varies: a log's, or an additional place's."""
        context = self._context_of(place)
        settings = () if place.device is None else pinned(place, scheduler_varies=False)
        self._pins[place.name] = tuple(map(_pin, settings))
        for setting in sorted(self._pins[place.name], key=lambda t: t.knob.name == BlockScheduler.name):
            self._record(context, setting)
        self.repin(place)

    def _try_out(self, context: RunContext, varied: list[KnobSetting]) -> None:
        """Raise KnobError, before the first run, for a level that the kernel does not accept as written."""
        if any(setting.knob.name == BlockScheduler.name for setting in varied):
            return  # it changes the other settings: only a run sets them all in their final combination
        if context.place.forgets_settings:
            return  # not yet created as runs will use it; the setting may not even exist
        for setting in varied:
            with self._refusals():
                setting.write(context)
                setting.verify(context)

    def _refusals(self) -> AbstractContextManager[None]:
        """Suppress the refusal of a level in a race: there the level leaves with its first runs, and the others go on."""
        if self._resolved.study.design.kind is DesignKind.RACE:
            return suppress(KnobError, UnsupportedLevel)
        return nullcontext()

    def _record(self, context: RunContext, setting: KnobSetting) -> None:
        neutral = setting.knob.neutral(setting.declared, setting.values)
        setting.knob.prepare(
            context, setting.declared, setting.values if neutral is None else (*setting.values, neutral)
        )
        if (
            setting.knob.stage is Stage.DEVICE
            and setting.role is not None
            and not context.place.forgets_settings
        ):
            # Try it on the lab's own device before the first run: report now what the kernel lacks, and what
            # it offers.
            with self._refusals():
                setting.write(context)
            self._note_dragged(context)

    def _note_dragged(self, context: RunContext) -> None:
        """Journal the settings that a write has changed as a side effect."""
        for pin in self._pins.get(context.place.name, ()):
            pin.knob.prepare(context, pin.declared, ())

    def _pin_a_length_for_all_schedulers(self, context: RunContext) -> None:
        """Pin the queue length of scheduler "none", the disk's own: schedulers double it, so the shorter one suits all."""
        scheduler = registry.knob(BlockScheduler.name)
        scheduler.write(context, Setting(BlockScheduler.name, "none"), "none")
        self._note_dragged(context)
        self._pins[context.place.name] = tuple(
            _pin(Setting(pin.knob.name, pin.knob.read(context, pin.declared)))
            if pin.knob.name == NR_REQUESTS
            else pin
            for pin in self._pins[context.place.name]
        )

    def repin(self, place: Place) -> None:
        """Rewrite and verify the pinned queue settings, which a scheduler change alters."""
        context = self._context_of(place)
        pins = self._pins.get(place.name, ())
        for setting in pins:
            if setting.read(context) != setting.value:
                setting.write(context)
        for setting in pins:
            setting.verify(context)

    # what other programs may change meanwhile

    def applied(self, context: RunContext, settings: Iterable[KnobSetting]) -> None:
        """Remember what a run has set."""
        self._applied = context, tuple(setting for setting in settings if setting.knob.open_to_others)

    def forget(self) -> None:
        """Forget what was set: the next run begins to change it."""
        self._applied = None

    def check_in_force(self, when: str) -> None:
        """Read back what the last run has set and what is pinned there. Raises SettingChanged, which says ``when``."""
        if self._applied is None:
            return
        context, settings = self._applied
        for setting in (*settings, *self._pins.get(context.place.name, ())):
            try:
                setting.verify(context)
            except KnobError as error:
                raise SettingChanged(error, when) from error

    def changed(self) -> tuple[tuple[KnobSetting, KnobError], ...]:
        """Return each of the settings of the last run that has another value by now."""
        found = []
        context, settings = self._applied or (None, ())
        for setting in settings:
            assert context is not None
            try:
                setting.verify(context)
            except KnobError as error:
                found.append((setting, error))
        return tuple(found)

    def who_changes_them(self) -> tuple[str, ...]:
        """Return who may have changed the settings of the last run, in words; they are written again for that."""
        if self._applied is None:
            return ()
        context, settings = self._applied
        files = [(setting, setting.knob) for setting in settings if isinstance(setting.knob, KernelFileKnob)]
        paths = [path for setting, knob in files for path in knob.paths(context, setting.declared)]

        def write_again() -> None:
            with suppress(LabError, TargetError):
                for setting, _ in files:
                    setting.write(context)

        return suspects(paths, write_again)


def _pin(setting: Setting) -> KnobSetting:
    return KnobSetting(registry.knob(setting.knob), setting, setting.value, (setting.value,), None)
