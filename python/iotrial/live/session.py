"""The session of a live trial: the machine in use, its settings, and the watchdog that restores them.

Today's settings are what the undo journal has recorded before the first change. Every window starts from there: the
journal is undone entry by entry, each read back, then the settings of the window are written and read back. So a window
with today's settings runs exactly what a restore leaves, a change of scheduler takes nothing else along, and the path
from one setting to the next is the same in either direction. Where the settings stay, they are written again without
that, so that nothing changes.
"""

from __future__ import annotations

from iotrial.design.model import Arm, Condition
from iotrial.errors import RequestError
from iotrial.knobs.block import BlockScheduler
from iotrial.knobs.knob import RunContext, TakenError
from iotrial.lab import host, registry
from iotrial.lab.in_place import InPlace
from iotrial.lab.journal import Entry
from iotrial.lab.knobs.mount import MountAtime, MountOption
from iotrial.lab.machine.others import suspects
from iotrial.lab.place import Place
from iotrial.lab.target import Target
from iotrial.live.watchdog import Watchdog
from iotrial.probe.client import Probe
from iotrial.runner.places import Site
from iotrial.runner.resolve import KnobSetting
from iotrial.runner.session import Session

#: how long setting today's settings again may take
_CLOSING_S = 60.0


class LiveSession(Session):
    """What is open while a live trial runs. Use ``switch`` to change settings; closing it sets today's again."""

    watchdog: Watchdog
    context_in_use: RunContext

    def open(self) -> None:
        """Open the machine in use, start the watchdog, and journal what will be changed. Nothing is changed yet."""
        self.watchdog = Watchdog(self.trial)
        super().open()

    def close(self) -> None:
        """Set today's settings again, then end the watchdog. If that fails, the watchdog stays and tries too."""
        self.watchdog.beat(_CLOSING_S)
        super().close()
        self.watchdog.stop()

    def check_kind(self) -> None:
        """Take any study: the command line chooses this session for those of a service in use."""

    def _start_probe(self) -> None:
        # after the journal was found empty and before its first entry: the watchdog of an attempt before looks for that
        self.watchdog.start()
        # not isolated: the mount of the service itself is changed
        self.probe = Probe(isolate=False, waiting=self._waiting)
        self._announce(self.probe)
        self.target = Target(self.probe)

    def _place(self, site: Site, filesystem: str) -> Place:
        return InPlace(
            site.place(filesystem),
            self.target,
            self.journal,
            folder=self.folder,
            makes_files=False,
            trial=self.trial,
            shared=True,
        )

    def _furnish_once(self) -> None:
        self.boot_id = host.boot_id(self.target)
        self._open_places()
        (place,) = self.places.values()
        self.context_in_use = self.context(place)
        settings = [setting for group in self.resolved.settings.values() for setting in group]
        # the scheduler is recorded last, and so undone first: a change of it changes other settings of the queue
        for setting in sorted(settings, key=lambda setting: setting.knob.name == BlockScheduler.name):
            setting.knob.prepare(self.context_in_use, setting.declared, setting.values)
        for factor in self.plan.study.treatment_factors:
            for setting in self.resolved.settings[factor.name, factor.reference]:
                self._check_today(setting)

    def _check_today(self, setting: KnobSetting) -> None:
        """Raise RequestError if the reference of a factor is not today's setting."""
        if isinstance(setting.knob, MountOption):
            if setting.value != "default":
                raise RequestError(
                    f'knob {setting.knob.name}: the reference is {setting.value}, expected "default", today\'s option',
                    hint="name default first, or leave it out",
                )
            return
        found = setting.read(self.context_in_use)
        if found != setting.value:
            raise RequestError(
                f"{setting.knob.name} on {setting.knob.where(self.context_in_use, setting.declared)}: today's setting is "
                f'"{found}", but the trial compares with "{setting.value}"',
                hint="today's setting must be the reference: start a new trial, or set it back",
            )

    # switching

    def to_today(self) -> None:
        """Set today's settings, and read them back. Raises TakenError if something else has changed one of them."""
        self.settings.forget()
        for entry in reversed(self._entries()):
            try:
                registry.knob(entry.knob).undo(self.target, entry)
            except TakenError as error:
                who = self.who_changes_settings()
                hint = "stop what changes it, then `iotrial resume`"
                raise TakenError("; ".join((error.message, *who)), hint=hint) from error
        self.context_in_use.place.to_neutral(always=False, fresh=False)

    def _entries(self) -> list[Entry]:
        every = self.journal.pending()
        return [one for one in every if one.knob not in registry.objects() and one.trial == self.trial]

    def who_changes_settings(self) -> tuple[str, ...]:
        """Return who may have changed a setting, in words. Nothing is written for it: a service is using the machine."""
        paths = [entry.address["path"] for entry in self._entries() if "path" in entry.address]
        return suspects(paths, lambda: None)

    def switch(self, condition: Condition, arm: Arm, *, stays: bool = False) -> None:
        """Set the settings of an arm, from today's, and read them back. Raises KnobError, LabError, TargetError.

        Every setting is written before every window. ``stays``: the arm's settings are in force already and are written
        again. Then another arm's settings, or today's, are not set in between, which would be a change in some windows only.
        """
        if stays:
            self.settings.check_in_force("since they were set")
        if arm is self.plan.reference or not stays:
            self.to_today()
        today = set(self.resolved.settings_of(condition, self.plan.reference))
        settings = [
            setting
            for setting in self.resolved.settings_of(condition, arm)
            # today's mode of a mount may have a flag more than its level names
            if setting not in today or not isinstance(setting.knob, MountAtime)
        ]
        for setting in sorted(
            settings,
            key=lambda setting: (
                setting.knob.name != BlockScheduler.name,
                not setting.knob.yields(setting.value),
            ),
        ):
            setting.write(self.context_in_use)
        self.context_in_use.place.settle(always=False, fresh=False)
        every = self.resolved.settings_of(condition, arm)
        for setting in every:
            setting.verify(self.context_in_use)
        self.settings.applied(self.context_in_use, every)
