"""The settings that ``iotrial best`` chooses from: each setting with its levels, today's first, and their combinations."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from iotrial.errors import IotrialError, RequestError
from iotrial.knobs.block import NR_REQUESTS, BlockScheduler, BlockTunable
from iotrial.knobs.declaration import Safety, consequence_of, declarations
from iotrial.knobs.kernel_file import KernelFileKnob
from iotrial.knobs.knob import RunContext
from iotrial.knobs.sysctl import Sysctl
from iotrial.lab import registry
from iotrial.lab.knobs.mount import MountAtime
from iotrial.runner.combinations import clash
from iotrial.runner.quick_study import (
    SETTINGS,
    SYSCTL,
    Varied,
    bundles_of,
    parameter_of,
    setting_of,
    short_names,
    value_labels,
)
from iotrial.runner.today import filled, system_of
from iotrial.study.model import TODAY, Factor, Level, Role, Setting
from iotrial.study.places import IN_PLACE
from iotrial.study.schema import MAX_LABEL

ALL = "all"
_CONDITION = re.compile(r"(?P<setting>.+?)\s+if\s+(?P<other>[^\s=]+)=(?P<level>\S+)", re.ASCII)

#: of every dimension the position of a level; today's is 0
Choice = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Dimension:
    """One setting: a short name, its levels by label, today's first.

    ``only``: the position of another dimension and of its level, where the setting exists only with that level; with any
    other it stays as it is.
    """

    name: str
    levels: tuple[Level, ...]
    only: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Space:
    """The dimensions of a search. ``refused``: levels that were left out, each with the reason. ``failing``: positions of
    dimensions and of their levels with which runs failed."""

    dimensions: tuple[Dimension, ...]
    refused: tuple[str, ...] = ()
    failing: frozenset[tuple[int, int]] = frozenset()

    @property
    def size(self) -> int:
        """Number of combinations, counting those that a condition makes equal."""
        return math.prod(len(one.levels) for one in self.dimensions)

    @property
    def today(self) -> Choice:
        """The choice that changes nothing."""
        return (0,) * len(self.dimensions)

    def choices(self) -> Iterator[Choice]:
        """Yield every possible combination, today's first."""
        for choice in itertools.product(*(range(len(one.levels)) for one in self.dimensions)):
            if self.possible(choice):
                yield choice

    def single_changes(self) -> Iterator[Choice]:
        """Yield the choices that change one setting, and another one only where it would be impossible otherwise."""
        for place, one in enumerate(self.dimensions):
            for level in range(1, len(one.levels)):
                choice = list(self.today)
                choice[place] = level
                if one.only is not None:
                    choice[one.only[0]] = one.only[1]
                if (found := self._without_clash(choice, place)) is not None:
                    yield found

    def _without_clash(self, choice: list[int], kept: int) -> Choice | None:
        """Return the choice, with one other dimension changed if it is impossible as it is; None if that does not help."""
        if self.possible(tuple(choice)):
            return tuple(choice)
        for place, one in enumerate(self.dimensions):
            for level in range(len(one.levels)):
                changed = [level if at == place else own for at, own in enumerate(choice)]
                if place != kept and self.possible(tuple(changed)):
                    return tuple(changed)
        return None

    def exists(self, place: int, choice: Sequence[int]) -> bool:
        """Return whether the setting of a dimension exists with the other levels of a choice."""
        only = self.dimensions[place].only
        return only is None or choice[only[0]] == only[1]

    def possible(self, choice: Choice) -> bool:
        """Return whether each setting that is changed exists with the other levels and does not fail, and no two exclude each
        other."""
        if not self.failing.isdisjoint(enumerate(choice)):
            return False
        exist = all(self.exists(place, choice) for place in self.changed(choice))
        settings = self._settings(choice)
        return exist and not any(clash(*pair) for pair in itertools.combinations(settings, 2))

    def _settings(self, choice: Choice) -> tuple[Setting, ...]:
        levels = (one.levels[level] for one, level in zip(self.dimensions, choice, strict=True))
        return tuple(setting for level in levels for setting in level.settings)

    def changed(self, choice: Choice) -> tuple[int, ...]:
        """Return the positions of the dimensions that a choice changes."""
        return tuple(place for place, level in enumerate(choice) if level)

    def without(self, failed: Iterable[Choice]) -> Space:
        """Return the space without the levels that failed alone."""
        alone = {(at[0], choice[at[0]]) for choice in failed if len(at := self.changed(choice)) == 1}
        return replace(self, failing=self.failing | alone)

    def bundle(self, choice: Choice, label: str = "") -> Level:
        """Return a choice as one level that sets every knob, labelled by what it changes."""
        return Level(label or self.label(choice), self._settings(choice))

    def label(self, choice: Choice) -> str:
        """Return e.g. "scheduler none and read_ahead_kb 4096"."""
        changes = self.changed(choice)
        if not changes:
            return TODAY
        words = [
            f"{self.dimensions[at].name} {self.dimensions[at].levels[choice[at]].label}" for at in changes
        ]
        text = " and ".join(words)
        if len(text) > MAX_LABEL:  # the number of the choice tells labels apart that would be cut to the same
            number = f" ({self._number(choice)})"
            text = text[: MAX_LABEL - len(number) - 1] + "…" + number
        return text

    def labelled(self, choices: Iterable[Choice]) -> Mapping[str, Choice]:
        """Return choices by label."""
        return {self.label(choice): choice for choice in choices}

    def _number(self, choice: Choice) -> int:
        found = 0
        for one, level in zip(self.dimensions, choice, strict=True):
            found = found * len(one.levels) + level
        return found


def space_of_settings(
    texts: Sequence[str],
    parameters: Sequence[tuple[str, str]],
    folder: str,
    *,
    lab: str,
    levels: Sequence[str] = (),
) -> Space:
    """Read what to choose from: KNOB=LEVEL,LEVEL, the same with "if KNOB=LEVEL" after it, or "all"; and ``--level``.

    Today's value of each knob is read where the folder is; in an image lab it is the first level. Raises RequestError
    for an empty or contradictory space, and UnknownName for a knob that does not exist.
    """
    wanted: list[tuple[Varied, tuple[str, str] | None]] = []
    everything = False
    for text in texts:
        if text == ALL:
            everything = True
            continue
        found = _CONDITION.fullmatch(text)
        condition = None if found is None else (found["other"], found["level"])
        wanted.append((setting_of(text if found is None else found["setting"]), condition))
    wanted += [(parameter_of(name, values), None) for name, values in parameters]
    if everything and lab != IN_PLACE:
        raise RequestError("all: only in place, where it asks the device and the mount what they have")
    if not wanted and not everything and not levels:
        raise RequestError(
            "there is nothing to choose from",
            hint="block.scheduler=none,mq-deadline, or all for every setting of the disk and the mount",
        )
    if lab == IN_PLACE:
        with system_of(folder) as context:
            return _in_place(wanted, context, bundles_of(levels, today=True), everything=everything)
    bundles = bundles_of(levels, today=False)
    if any(s.value == TODAY for level in bundles for s in level.settings):
        raise RequestError(
            "today's values are known only in place", hint="name every knob in every --level, in two at least"
        )
    return _space([(varied, condition, None) for varied, condition in wanted], bundles)


def space_of_factors(factors: Sequence[Factor], *, allowed: frozenset[str] = frozenset()) -> Space:
    """Return the space of a study's treatment factors, each with its reference as today's level.

    Levels that put data at risk are left out unless their factor is in ``allowed``. Raises RequestError if nothing is left.
    """
    dimensions, refused = [], []
    for factor in factors:
        reference = factor.level(factor.reference)
        levels = [reference, *(level for level in factor.levels if level is not reference)]
        kept = [levels[0]]
        for level in levels[1:]:
            risk = _risk(level.settings)
            if risk is None or factor.name in allowed:
                kept.append(level)
            else:
                refused.append(f"{factor.name} {level.label}: {risk}")
        if len(kept) > 1:
            dimensions.append(Dimension(factor.name, tuple(kept)))
    return _checked(Space(tuple(dimensions), tuple(refused)))


def _risk(settings: Iterable[Setting]) -> str | None:
    found = [consequence_of(setting) for setting in settings]
    return next((one.sentence for one in found if one.safety is Safety.DATA_AT_RISK), None)


def _in_place(
    wanted: Sequence[tuple[Varied, tuple[str, str] | None]],
    context: RunContext,
    bundles: tuple[Level, ...],
    *,
    everything: bool,
) -> Space:
    rows: list[tuple[Varied, tuple[str, str] | None, str | None]] = []
    for varied, condition in wanted:
        rows.append((varied, condition, today_of(context, varied)))
    refused: list[str] = []
    if everything:
        named = {varied.name for varied, _ in wanted}
        for varied in candidates():
            if varied.name in named:
                continue
            try:
                today = today_of(context, varied)
                possible = registry.knob(varied.knob).levels(context, _setting(varied, ""))
            except IotrialError:
                continue  # this device, mount or kernel does not have it
            kept = tuple(value for value in varied.values if not possible or value in possible)
            # a device may hold no more requests than it does today
            if varied.knob == NR_REQUESTS and today is not None:
                kept = tuple(value for value in kept if int(value) < int(today))
            if today is not None and set(kept) - {today}:
                rows.append((Varied(varied.name, varied.knob, varied.option, kept), None, today))
    if bundles:
        labels = tuple(level.label for level in bundles)
        factor = Factor(SETTINGS, Role.TREATMENT, bundles, TODAY, labels)
        bundles = filled(factor, IN_PLACE, context, quick=True).levels
    return _space(rows, bundles, refused)


def candidates() -> Iterator[Varied]:
    """Yield what ``all`` tries: the knobs that declare candidates, without those that put data at risk."""
    for knob in declarations().values():
        if knob.candidates:
            safe = tuple(v for v in knob.candidates if _risk([Setting(knob.name, v)]) is None)
            yield Varied(knob.name, knob.name, None, safe)
    for key, values in Sysctl.CANDIDATES.items():
        yield Varied(key, SYSCTL, ("key", key), values)


def _setting(varied: Varied, value: str) -> Setting:
    return Setting(varied.knob, value, () if varied.option is None else (varied.option,))


def today_of(context: RunContext, varied: Varied) -> str | None:
    """Return the present value of a setting; None for one that the machine does not have, such as a word of the command."""
    knob = registry.knob(varied.knob)
    if IN_PLACE not in knob.requires(_setting(varied, varied.values[0])).labs:
        raise RequestError(
            f"{varied.name} cannot be set in place",
            hint="use a copy of the folder on an image: --copy-from . (for a replay: --lab image)",
        )
    shown = isinstance(knob, KernelFileKnob) or knob.name == MountAtime.name
    return knob.read(context, _setting(varied, "")) if shown else None


def _space(
    rows: Sequence[tuple[Varied, tuple[str, str] | None, str | None]],
    bundles: tuple[Level, ...] = (),
    refused: Iterable[str] = (),
) -> Space:
    names = short_names([varied for varied, _, _ in rows])
    dimensions: list[Dimension] = []
    for varied, _, today in rows:
        first = varied.values[0] if today is None else today
        values = list(dict.fromkeys([first, *(v for v in varied.values if v != TODAY or today is None)]))
        if len(values) < 2:
            raise RequestError(
                f"{varied.name}: {first} is today's value, so there is nothing to choose from",
                hint="name other levels",
            )
        levels = [
            Level(label, (_setting(varied, value),))
            for label, value in zip(value_labels(values), values, strict=True)
        ]
        dimensions.append(Dimension(names[varied.name], tuple(levels)))
    places = {varied.name: place for place, (varied, _, _) in enumerate(rows)}
    short = {names[varied.name]: place for place, (varied, _, _) in enumerate(rows)}
    for place, (varied, condition, _) in enumerate(rows):
        if condition is None and varied.knob == BlockTunable.name and BlockScheduler.name in places:
            condition = BlockScheduler.name, BlockTunable.TUNABLES[varied.name][0]
        if condition is not None:
            other, level = condition
            at = places.get(other, short.get(other))
            labels = [] if at is None else [one.label for one in dimensions[at].levels]
            if at is None or at == place or level not in labels:
                raise RequestError(
                    f"{varied.name} if {other}={level}: {other} has no level {level} among those to choose from",
                    hint=f"add {other}=...,{level}",
                )
            one = dimensions[place]
            dimensions[place] = Dimension(one.name, one.levels, (at, labels.index(level)))
    dimensions += [Dimension(SETTINGS, bundles)] if bundles else []
    return _checked(Space(tuple(dimensions), tuple(refused)))


def _checked(space: Space) -> Space:
    if not space.dimensions:
        left_out = f" ({'; '.join(space.refused)})" if space.refused else ""
        raise RequestError(
            f"there is nothing to choose from: no setting has a level besides today's{left_out}",
            hint="name levels: KNOB=LEVEL,LEVEL",
        )
    return space
