"""What an agent may do on this machine: the policy file of ``iotrial mcp``.

The policy is the user's consent, given beforehand; an agent can neither widen it nor answer a question. Whatever it says,
an agent never tries or applies what puts data at risk, and never applies what is beyond the account of errors.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, field

from iotrial.decoding import convert
from iotrial.documents import JsonObject
from iotrial.durable import read_own
from iotrial.errors import RequestError, UnknownName
from iotrial.knobs.declaration import Consequence, Safety, consequence_of
from iotrial.runner.quick_study import setting_of
from iotrial.study.model import Setting
from iotrial.terminal import escape
from iotrial.tune.choice import Choice
from iotrial.units import parse_duration

#: applied without being named by a user
_SAFE = (Safety.HARMLESS, Safety.TRADE_OFF)


class Work(JsonObject, frozen=True):
    """What is measured: an agent names it, and cannot change it."""

    command: Annotated[tuple[str, ...], Meta(min_length=1)]
    cache: str = "as-is"
    #: further options of ``iotrial try``, such as ``["--response", "tps=regex:..."]``
    options: tuple[str, ...] = ()


class Applying(JsonObject, frozen=True):
    """Whether an agent may apply settings, how long they wait for ``iotrial keep``, and whether it may keep them itself."""

    allowed: bool = False
    within: str = "10 min"
    keep: bool = False


class Policy(JsonObject, frozen=True):
    """The policy. ``trial`` and ``total``: durations of one trial, and of all trials of one session."""

    folders: tuple[str, ...] = ()
    knobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    work: Mapping[str, Work] = field(default_factory=dict)
    trial: str = "2 min"
    total: str = "1 h"
    apply: Applying = Applying()

    @property
    def trial_s(self) -> float:
        """The longest trial, in seconds of measuring."""
        return parse_duration(self.trial)

    @property
    def total_s(self) -> float:
        """All trials of a session together, in seconds of measuring."""
        return parse_duration(self.total)

    def folder(self, name: str) -> str:
        """Return a folder without links if it is one of the policy's or below it. Raises RequestError."""
        path = Path(name).expanduser().resolve()
        if not any(path.is_relative_to(Path(one).expanduser().resolve()) for one in self.folders):
            raise _outside("folder", name, self.folders)
        return str(path)

    def work_named(self, name: str) -> Work:
        """Return the work of this name. Raises RequestError."""
        if name not in self.work:
            raise _outside("work", name, self.work)
        return self.work[name]

    def words(self, settings: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the words of ``iotrial try`` that compare these levels, by knob. Raises RequestError."""
        if not settings:
            raise RequestError("no setting is named", hint="such as {'block.read_ahead_kb': ['128', '1024']}")
        words = []
        for knob, levels in settings.items():
            if knob not in self.knobs:
                raise _outside("knob", knob, self.knobs)
            for level in levels:
                if level not in self.knobs[knob]:
                    raise _outside(f"level of {knob}", level, self.knobs[knob])
                self.refuse_risk(knob, level)
            words.append(f"{knob}={','.join(levels)}")
        return words

    def refuse_risk(self, knob: str, level: str) -> None:
        """Raise RequestError if a level, by its knob as ``try`` names it, puts data at risk."""
        judged = judged_level(knob, level)
        if judged.safety is Safety.DATA_AT_RISK:
            raise RequestError(
                f"{escape(knob)} {escape(level)} puts data at risk, which no policy allows: {judged.sentence}",
                hint="only a person can try it: `iotrial try`",
            )

    def time_s(self, wanted_s: float | None, spent_s: float) -> float:
        """Return how long a trial may measure, with ``spent_s`` measured in this session so far. Raises RequestError."""
        time_s = self.trial_s if wanted_s is None else wanted_s
        if not 0.0 < time_s <= self.trial_s:
            raise RequestError(f"a trial may take at most {self.trial}, not {time_s:g} s")
        if spent_s + time_s > self.total_s:
            raise RequestError(
                f"the trials of a session may take {self.total} together, and {spent_s:g} s are spent",
                hint="a user may start the server again",
            )
        return time_s

    def check_apply(self, choices: Sequence[Choice]) -> None:
        """Raise RequestError unless all of these settings may be applied."""
        if not self.apply.allowed:
            raise RequestError("the policy does not allow an agent to apply settings", hint="[apply] allowed")
        for choice in choices:
            levels = {
                level
                for name, levels in self.knobs.items()
                if _addresses(name) == (choice.knob, tuple(choice.options.items()))
                for level in levels
            }
            if choice.value not in levels:
                raise _outside("setting", f"{choice.name} = {choice.value}", sorted(self.knobs))
            if choice.safety not in _SAFE:
                raise RequestError(f"{escape(choice.name)} is {choice.safety}: only a person can apply it")


def judged_level(knob: str, level: str) -> Consequence:
    """Return what a level, by its knob as ``try`` names it, does to the safety of data. Raises UnknownName,
    RequestError."""
    varied = setting_of(f"{knob}={level}")
    return consequence_of(
        Setting(varied.knob, varied.values[0], () if varied.option is None else (varied.option,))
    )


def _addresses(knob: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    varied = setting_of(f"{knob}=?")
    return varied.knob, () if varied.option is None else (varied.option,)


def _outside(what: str, name: str, allowed: Sequence[str] | Mapping[str, object]) -> RequestError:
    return RequestError(
        f'{what} "{escape(name)}" is not in the policy',
        hint=f"it allows: {', '.join(map(escape, allowed)) or 'none'}",
    )


def read_policy(path: Path) -> Policy:
    """Read a policy file, which only its owner may be able to write. Raises RequestError, LabError."""
    try:
        policy = convert(tomllib.loads(read_own(path).decode()), Policy)
        limits = policy.trial_s, policy.total_s, parse_duration(policy.apply.within)
    except FileNotFoundError as error:
        raise RequestError(f"policy {escape(path)}: no such file") from error
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise RequestError(
            f"policy {escape(path)}: {escape(str(error))}", hint="docs/mcp.md has an example"
        ) from error
    if not all(0.0 < one <= 86_400.0 for one in limits):
        raise RequestError(f"policy {escape(path)}: expected durations of up to 24 h")
    for name in policy.folders:
        if not Path(name).expanduser().is_absolute():
            raise RequestError(f"policy {escape(path)}: folder {escape(name)}: expected an absolute path")
    for knob, levels in policy.knobs.items():
        for level in levels:
            if "," in level:
                raise RequestError(f"policy {escape(path)}: {escape(knob)}: a level has no comma")
            try:
                judged = judged_level(knob, level)
            except UnknownName as error:
                raise RequestError(f"policy {escape(path)}: {error.message}", hint=error.hint) from error
            if judged.safety is Safety.DATA_AT_RISK:
                raise RequestError(
                    f"policy {escape(path)}: {escape(knob)} {escape(level)} puts data at risk: {judged.sentence}",
                    hint="leave it out: an agent may never try it",
                )
    return policy
