"""Today's values: what the settings on trial are set to on the user's own system and device.

``today`` is a level of every knob that has such a value, and levels that set several knobs keep today's value of those that
they do not name. ``default`` is the kernel's default, where it is declared. All are replaced by the values themselves before
a study is resolved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from msgspec import structs

from iotrial.documents import JsonObject
from iotrial.errors import IotrialError, RequestError
from iotrial.knobs.declaration import Stage
from iotrial.knobs.knob import RunContext, WorkDraft
from iotrial.knobs.sysctl import Sysctl
from iotrial.lab import registry
from iotrial.lab.in_place import InPlace
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target
from iotrial.paths import state_folder
from iotrial.probe.client import Probe
from iotrial.study.model import DEFAULT, TODAY, Factor, Level, Setting, Study, setting_name
from iotrial.study.places import GUEST, IN_PLACE
from iotrial.study.schema import MAX_LABEL


class TodaysValue(JsonObject, frozen=True):
    """The value of one setting before the trial. ``levels``: the factor's levels with this value; none if it has none."""

    factor: str
    setting: str
    value: str
    levels: tuple[str, ...]


@contextmanager
def system_of(folder: str) -> Iterator[RunContext]:
    """Open what holds a folder of the user's, to read its settings. Changes nothing."""
    with Probe(isolate=False) as probe:
        target = Target(probe)
        journal = Journal(state_folder() / "journal")
        place = InPlace("", target, journal, folder=folder, makes_files=False)
        yield RunContext(target=target, place=place, journal=journal, files=None, work=WorkDraft())


def is_users_own(setting: Setting, lab: str) -> bool:
    """Return whether a setting acts on the user's own system in this kind of lab; its device and mount only in place."""
    stage = registry.knob(setting.knob).stage
    return lab != GUEST and (
        stage is Stage.HOST or (lab == IN_PLACE and stage in (Stage.DEVICE, Stage.MOUNT))
    )


def value_today(context: RunContext, setting: Setting) -> str | None:
    """Return the present value of a setting, in the form of a level; None if it has none here (no such file or mount)."""
    try:
        return registry.knob(setting.knob).today(context, setting)
    except IotrialError:
        return None


def todays_values(study: Study, lab: str, context: RunContext) -> tuple[TodaysValue, ...]:
    """Return today's value of each setting that the factors set on the user's own system."""
    found = []
    for factor in study.factors:
        for knob, options in dict.fromkeys(
            (s.knob, s.options) for one in factor.levels for s in one.settings
        ):
            setting = Setting(knob, _another(factor, knob, options), options)
            if (
                _is_cleared(setting, factor, context)
                or not is_users_own(setting, lab)
                or (value := value_today(context, setting)) is None
            ):
                continue
            named = setting_name(knob, dict(options))
            having = tuple(
                level.label
                for level in factor.levels
                if any(
                    (s.knob, s.options) == (knob, options) and registry.knob(knob).is_today(s, value)
                    for s in level.settings
                )
            )
            found.append(TodaysValue(factor.name, named, value, having))
    return tuple(found)


def _is_cleared(setting: Setting, factor: Factor, context: RunContext) -> bool:
    """Return whether a sysctl is 0 only because the other one of its pair, which the factor sets too, is in force."""
    key = dict(setting.options).get("key", "")
    other = Setting(Sysctl.name, "", (("key", Sysctl.PAIRS.get(key, "")),))
    sets = any(s.knob == Sysctl.name and s.options == other.options for s in factor.levels[0].settings)
    if setting.knob != Sysctl.name or not sets:
        return False
    return value_today(context, setting) == "0" and value_today(context, other) not in ("0", None)


def _another(factor: Factor, knob: str, options: tuple[tuple[str, str], ...]) -> str:
    """Return a value that one of the levels gives this knob: without an address, it says what is meant."""
    values = [
        s.value for one in factor.levels for s in one.settings if (s.knob, s.options) == (knob, options)
    ]
    return next((value for value in values if value not in (TODAY, DEFAULT)), values[0])


def with_today(study: Study, lab: str, folder: str) -> Study:
    """Return the study with values in place of ``today`` and ``default``, and of knobs that only some levels of a factor set.

    A quick study labels such a level with its value, and has each value once. Raises RequestError if a value cannot be read,
    or if today's value leaves nothing to compare.
    """
    if not any(_is_open(factor) for factor in study.factors):
        return study
    with system_of(folder if lab == IN_PLACE else "/") as context:
        factors = tuple(
            filled(factor, lab, context, quick=study.quick) if _is_open(factor) else factor
            for factor in study.factors
        )
    return structs.replace(study, factors=factors)


def _is_open(factor: Factor) -> bool:
    knobs = [{(s.knob, s.options) for s in level.settings} for level in factor.levels]
    named = any(
        (s.value == TODAY and _has_today(s)) or _is_word_for_default(s)
        for level in factor.levels
        for s in level.settings
    )
    return named or any(mine != knobs[0] for mine in knobs)


def _has_today(setting: Setting) -> bool:
    """Return whether ``today`` is not simply a word for this knob: a program's argument may be any."""
    return registry.knob(setting.knob).stage not in (Stage.WORK, Stage.PLACE)


def _is_word_for_default(setting: Setting) -> bool:
    """Return whether ``default`` stands for a value: some knobs have such a level themselves, and an argument may be any."""
    if setting.value != DEFAULT or not _has_today(setting):
        return False
    knob = registry.knob(setting.knob)
    if knob.listed_by_kernel:
        return True
    try:
        knob.parse(setting)
    except IotrialError:
        return True
    return False


def filled(factor: Factor, lab: str, context: RunContext, *, quick: bool) -> Factor:
    """Return the factor with today's values; see ``with_today``."""
    knobs = dict.fromkeys((s.knob, s.options) for level in factor.levels for s in level.settings)
    levels: list[Level] = []
    for level in factor.levels:
        own = {(s.knob, s.options): s.value for s in level.settings}
        wanted = [Setting(knob, own.get((knob, options), TODAY), options) for knob, options in knobs]
        settings = tuple(
            Setting(one.knob, _value(factor, level, one, own, lab, context), one.options) for one in wanted
        )
        label = level.label
        if quick and label in (TODAY, DEFAULT) and settings[0].value != label and len(settings) == 1:
            label = f"{settings[0].value} ({label})"[:MAX_LABEL]
        levels.append(Level(label, settings))
    reference = levels[[one.label for one in factor.levels].index(factor.reference)]
    kept: dict[tuple[Setting, ...], Level] = {}
    for level in sorted(levels, key=lambda one: not one.label.endswith(f"({TODAY})") and one.label != TODAY):
        same = kept.setdefault(level.settings, level)
        if same is not level and not quick:
            raise RequestError(
                f'factor {factor.name}: today\'s value is that of level "{level.label}", so "{same.label}" is the same level',
                hint=f"omit one of them: --set {factor.name}=...",
            )
    remaining = tuple(kept[one] for one in dict.fromkeys(level.settings for level in levels))
    if len(remaining) < 2 <= len(levels):
        raise RequestError(
            f"{factor.name}: {remaining[0].label.removesuffix(f' ({TODAY})')} is today's value: there is nothing to compare",
        )
    return structs.replace(
        factor,
        levels=remaining,
        reference=kept[reference.settings].label,
        default=tuple(one.label for one in remaining) if quick else factor.default,
    )


def _default(factor: Factor, level: Level, setting: Setting) -> str:
    found = registry.knob(setting.knob).default_of(setting)
    if found is None:
        raise RequestError(
            f'factor {factor.name}, level "{level.label}": no default of '
            f"{setting_name(setting.knob, dict(setting.options))} is known: it depends on kernel, distribution or device",
            hint="name its value, or compare with today's: today",
        )
    return found


def _value(
    factor: Factor,
    level: Level,
    setting: Setting,
    own: Mapping[tuple[str, tuple[tuple[str, str], ...]], str],
    lab: str,
    context: RunContext,
) -> str:
    """Return a level's value of one setting, with today's value for ``today`` and for one that it does not name."""
    if _is_word_for_default(setting):
        return _default(factor, level, setting)
    if setting.value != TODAY or not _has_today(setting):
        return setting.value
    options = dict(setting.options)
    named = setting_name(setting.knob, options)
    other = Sysctl.PAIRS.get(options.get("key", "")) if setting.knob == Sysctl.name else None
    if other is not None and own.get((Sysctl.name, (("key", other),)), TODAY) not in (TODAY, "0"):
        return "0"  # the kernel clears it when the other is written
    meant = Setting(setting.knob, _another(factor, setting.knob, setting.options), setting.options)
    found = value_today(context, meant) if is_users_own(setting, lab) else None
    if found is None:
        where = "in place, with --in FOLDER" if lab != IN_PLACE else "on this machine, or for this folder"
        raise RequestError(
            f'factor {factor.name}, level "{level.label}": there is no value of {named} today',
            hint=f"name its value; today's is known only for what is set {where}",
        )
    return found
