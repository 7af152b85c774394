"""Builds a study from a command line: settings with their levels, and a command with what it prints, or the replay of a
trace (``iotrial try``, ``best``).

The result is the text of a study file, so that what was tried can be saved, read and run again like any other study.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tomlkit

from iotrial.errors import RequestError, UnknownName, repeated, twice
from iotrial.knobs.block import READ_AHEAD, BlockScheduler, BlockTunable
from iotrial.knobs.cgroup import IoLatency, IoMax, IoWeight
from iotrial.knobs.declaration import Stage, declarations
from iotrial.knobs.sysctl import Sysctl
from iotrial.runner.combinations import clash
from iotrial.study.model import BEST, QUICK, TODAY, DesignKind, Level, Setting
from iotrial.study.places import IN_PLACE
from iotrial.workloads.command import SCRATCH

#: the factor with whole settings as levels
SETTINGS = "settings"
#: options of the command that hold more than one word are run by this shell, as in hyperfine
SHELL = "sh"
#: one level of the factor that compares commands
COMMAND = "{command}"
#: those of Linux since 5.0; a kernel may lack some
SCHEDULERS = ("none", "mq-deadline", "kyber", "bfq")
#: the kernel's other name of ``block.read_ahead_kb``, under which it is known on network mounts
BDI_READ_AHEAD = "bdi.read_ahead_kb"
VARIABLE, ARGUMENT, SYSCTL = "environment.variable", "command.argument", "sysctl"
_ENVIRONMENT = "env."
TUNABLE = f"{BlockTunable.name}."
#: limits of a control group: its path follows after an at sign
GROUP_KNOBS = (IoMax.name, IoWeight.name, IoLatency.name)
_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
LONGEST_LABEL = 60
TIMEOUT = "1 h"


@dataclass(frozen=True, slots=True)
class Printed:
    """A number that the command prints: ``kind`` is "regex" or "json", ``unit`` and ``better`` as in a study."""

    name: str
    kind: str
    expression: str
    unit: str | None = None
    better: str | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A trace to replay: its name in ``folder`` (an absolute path), and its SHA-256. ``timing`` as in a study."""

    trace: str
    folder: str
    checksum: str
    timing: str = "closed"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed.

    ``settings``: KNOB=LEVEL,LEVEL. ``parameters``: a placeholder's name and its values. ``commands``: argument lists; more
    than one are compared; none if a trace is replayed. ``shell`` runs each; None: the command itself is started.
    ``prepare`` and ``cleanup`` are lines for the shell. ``lab``: the kind of lab; ``size``: of its image, None: the default.
    """

    settings: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, ...], ...]
    shell: str | None = None
    cache: str = "as-is"
    prepare: str | None = None
    cleanup: str | None = None
    printed: tuple[Printed, ...] = ()
    expect_exit: int = 0
    stdout: str = "pipe"
    margin: str = "5 %"
    time: str = "1 min"
    lab: str = "in-place"
    size: str | None = None
    replay: Replayed | None = None
    #: levels of one factor that set several knobs: "NAME: KNOB=VALUE KNOB=VALUE"
    levels: tuple[str, ...] = ()
    #: whether today's values are levels too, and the reference
    today: bool = False
    #: whole settings to compare instead of ``settings`` and ``parameters``, the reference first, and their design
    bundles: tuple[Level, ...] = ()
    design: DesignKind = DesignKind.FULL


@dataclass(frozen=True, slots=True)
class Varied:
    """One factor: its knob, the option that addresses the knob, and the values."""

    name: str
    knob: str
    option: tuple[str, str] | None
    values: tuple[str, ...]


def study_text(wish: Wish) -> str:
    """Return the study as TOML. Raises RequestError, or UnknownName for a knob that does not exist."""
    if wish.replay is None and not (wish.commands and wish.commands[0]):
        raise _no_command(wish.settings)
    if wish.bundles:
        return tomlkit.dumps(_bundled(wish))
    factors = _factors_of(wish)
    argv, _ = _argv(wish)
    bundles = bundles_of(wish.levels, today=wish.today)
    _check(factors, argv, wish)
    names = short_names(factors)
    possible = None if bundles else _possible(factors)
    alone = factors
    if possible is not None:
        bundles = possible.levels
        alone = [factor for factor in factors if factor not in possible.together]
    tables = [_table(factor, names[factor.name]) for factor in alone]
    tables += [bundle_table(bundles)] if bundles else []
    return tomlkit.dumps(_document(wish, QUICK, _question(factors, wish), tables, argv))


def _document(
    wish: Wish, prefix: str, question: str, factors: list[dict[str, Any]], argv: list[str]
) -> dict[str, Any]:
    varied = ", ".join(factor["name"] for factor in factors if len(factor["levels"]) > 1)
    shown = _shown(wish) if wish.replay is None else f"replay of {wish.replay.trace}"
    return {
        "study": {
            "name": f"{prefix}{_name(wish, varied)}",
            "title": _line(f"{varied}: {shown}" if varied else shown),
            "question": _line(question),
            "margin": wish.margin,
            "account": False,
        },
        "lab": {"kind": wish.lab, **({} if wish.size is None else {"size": wish.size})},
        "budget": {"time": wish.time},
        "factor": factors,
        "workload": [_command(wish, argv) if wish.replay is None else _replay(wish.replay, _cache(wish))],
    }


def _name(wish: Wish, varied: str) -> str:
    """Return the name of the question: settings, command, and a digest, so that only equal questions share a name."""
    command = wish.replay.trace if wish.replay else " ".join(wish.commands[0])
    asked = (
        wish.settings, wish.parameters, wish.commands, wish.shell, wish.cache, wish.prepare, wish.lab, wish.size,
        wish.replay, wish.bundles, wish.stdout,
    )  # fmt: skip
    digest = hashlib.sha256(repr(asked).encode("utf-8", "surrogateescape")).hexdigest()[:6]
    words = [_NAME.sub("-", text)[:24].strip(".-") for text in (varied, command)]
    return "-".join([*filter(None, words), digest])


def _bundled(wish: Wish) -> dict[str, Any]:
    """Return the study that compares whole settings: a race, or the confirmation of its winner."""
    argv, _ = _argv(wish)
    factor = bundle_table(wish.bundles)
    question = f"Which settings make {_shown(wish)} fastest?"
    if wish.design is DesignKind.CONFIRM:
        question = f"Are these settings faster than today's for {_shown(wish)}, and is each of them needed?"
    document = _document(wish, BEST, question, [factor], argv)
    return {**document, "design": {"kind": wish.design.value}}


def bundle_table(bundles: Sequence[Level]) -> dict[str, Any]:
    """Return the table of a factor with levels of several knobs each."""
    levels = [
        {
            "label": bundle.label,
            "set": [{"knob": s.knob, **dict(s.options), "level": s.value} for s in bundle.settings],
        }
        for bundle in bundles
    ]
    return {"name": SETTINGS, "levels": levels}


def bundles_of(texts: Sequence[str], *, today: bool) -> tuple[Level, ...]:
    """Read ``--level`` arguments, NAME: KNOB=VALUE KNOB=VALUE; the first is the reference, or today's values if it is alone.

    Every level names every knob: with ``today`` where the user has not. Raises RequestError, or UnknownName for a knob that
    does not exist.
    """
    levels = [_bundle_of(text) for text in texts]
    knobs = dict.fromkeys((s.knob, s.options) for level in levels for s in level.settings)
    if levels and (today or len(levels) == 1):
        levels.insert(0, Level(TODAY, tuple(Setting(knob, TODAY, options) for knob, options in knobs)))
    labels = [level.label.casefold() for level in levels]
    if again := repeated(labels):
        raise RequestError(twice("--level", again))
    return tuple(
        Level(
            level.label,
            tuple(
                next(
                    (s for s in level.settings if (s.knob, s.options) == one), Setting(one[0], TODAY, one[1])
                )
                for one in knobs
            ),
        )
        for level in levels
    )


def left_out(wish: Wish) -> tuple[str, ...]:
    """Return a sentence for each combination of levels that ``study_text`` leaves out."""
    found = None if wish.levels or wish.bundles else _possible(_factors_of(wish))
    return () if found is None else found.left_out


@dataclass(frozen=True, slots=True)
class _Possible:
    """The factors of which some levels exclude each other, and their possible combinations as levels."""

    together: tuple[Varied, ...]
    levels: tuple[Level, ...]
    left_out: tuple[str, ...]


def _possible(factors: Sequence[Varied]) -> _Possible | None:
    """Return the possible combinations of factors that cannot all be crossed, such as a background limit above the limit.

    None if all can be, or if fewer than two combinations are left.
    """
    values = {f: [Setting(f.knob, value, _options(f)) for value in f.values] for f in factors}
    together = [
        f
        for f in factors
        if any(
            clash(*pair) for o in factors if o is not f for pair in itertools.product(values[f], values[o])
        )
    ]
    names = short_names(factors)
    labels, levels, without = [], [], []
    for settings in itertools.product(*(values[f] for f in together)):
        reasons = itertools.starmap(clash, itertools.combinations(settings, 2))
        why = next(filter(None, reasons), None)
        label = " ".join(f"{names[f.name]}={s.value}" for f, s in zip(together, settings, strict=True))
        if why is None:
            labels.append(label)
            levels.append(settings)
        else:
            without.append(f"{label} is left out: {why}")
    if not without or len(levels) < 2:
        return None
    return _Possible(tuple(together), tuple(map(Level, value_labels(labels), levels)), tuple(without))


def _factors_of(wish: Wish) -> list[Varied]:
    factors = [_besides_today(setting_of(text)) if wish.today else setting_of(text) for text in wish.settings]
    factors += [parameter_of(name, values) for name, values in wish.parameters]
    _, command = _argv(wish)
    return [*factors, *([] if command is None else [command])]


def _options(factor: Varied) -> tuple[tuple[str, str], ...]:
    return () if factor.option is None else (factor.option,)


def _bundle_of(text: str) -> Level:
    name, colon, rest = text.partition(":")
    if not colon or "=" in name:
        name, rest = text, text
    try:
        words = shlex.split(rest)
    except ValueError:
        words = []
    if not words or not name.strip() or not all("=" in word for word in words):
        raise RequestError(
            f'--level "{text}": expected NAME: KNOB=VALUE KNOB=VALUE',
            hint="such as --level 'small: vm.dirty_bytes=67108864 vm.dirty_background_bytes=16777216'",
        )
    settings = []
    for word in words:
        knob, _, value = word.partition("=")
        one = setting_of(f"{knob}=?")
        settings.append(Setting(one.knob, value, _options(one)))
    if again := repeated([(s.knob, s.options) for s in settings]):
        raise RequestError(f'--level "{text}": {twice("knob", again[0])}')
    return Level(value_labels([name.strip()])[0], tuple(settings))


def _besides_today(factor: Varied) -> Varied:
    """Return the factor with ``today`` as its first level, if its knob is a setting of the machine."""
    if declarations()[factor.knob].stage in (Stage.WORK, Stage.PLACE, Stage.CACHE):
        return factor
    return replace(factor, values=(TODAY, *(value for value in factor.values if value != TODAY)))


def _no_command(settings: Sequence[str]) -> RequestError:
    """Return the error for a command line without ``--``, with that line corrected if a command is on it."""
    first = next((place for place, text in enumerate(settings) if "=" not in text), None)
    if first is None or (not first and len(settings) == 1):
        return RequestError(
            "no command given",
            hint="put it after two dashes: iotrial try block.read_ahead_kb=128,1024 -- grep -r error /var/log; or replay "
            "what `iotrial record` recorded: --replay app.iotrace",
        )
    words = " ".join([*map(shlex.quote, settings[:first]), "--", *map(shlex.quote, settings[first:])])
    return RequestError("no command given: it comes after two dashes", hint=f"iotrial try {words}")


def known_settings() -> Iterable[str]:
    """Yield every name that may stand before the equals sign, but for those of variables."""
    addressed = (VARIABLE, ARGUMENT, SYSCTL, BlockTunable.name)
    yield from (name for name in declarations() if name not in addressed)
    yield from Sysctl.ALLOWED
    yield from (f"{TUNABLE}{key}" for key in BlockTunable.TUNABLES)


def levels_of(name: str) -> tuple[str, ...]:
    """Return the levels of a knob that are the same on every machine; none if they are numbers or not known."""
    if name == BlockScheduler.name:
        return SCHEDULERS
    knob = declarations().get(name)
    found: object = getattr(knob, "LEVELS", ())
    return found if isinstance(found, tuple) else ()


def setting_of(text: str) -> Varied:
    """Read KNOB=LEVEL,LEVEL. Raises RequestError, or UnknownName for a knob that does not exist."""
    name, equals, levels = text.partition("=")
    if not equals or not name or not levels:
        raise RequestError(f'"{text}": expected KNOB=LEVEL,LEVEL', hint=_guess(text))
    values = tuple(level.strip() for level in levels.split(","))
    if "" in values or len(set(values)) < len(values):
        raise RequestError(
            f'"{text}": a level is empty or given twice', hint="such as mount.atime=relatime,noatime"
        )
    if name.startswith(_ENVIRONMENT):
        variable = name.removeprefix(_ENVIRONMENT)
        return Varied(variable, VARIABLE, ("variable", variable), values)
    if name.startswith(TUNABLE):
        key = name.removeprefix(TUNABLE)
        if key not in BlockTunable.TUNABLES:
            raise UnknownName(f"key of {BlockTunable.name}", key, list(BlockTunable.TUNABLES))
        return Varied(key, BlockTunable.name, ("key", key), values)
    knob, at, group = name.partition("@")
    if at and knob in GROUP_KNOBS:
        return Varied(name, knob, ("key", group), values)
    name = READ_AHEAD.knob if name == BDI_READ_AHEAD else name.removeprefix(f"{SYSCTL}.")
    if name in Sysctl.ALLOWED:
        return Varied(name, SYSCTL, ("key", name), values)
    known = list(known_settings())
    if name in known:
        return Varied(name, name, None, values)
    ending = [one for one in known if one.endswith(f".{name}")]
    if len(ending) != 1:
        raise UnknownName("knob", name, [*known, *(one.rpartition(".")[2] for one in known)])
    if ending[0].startswith(TUNABLE):
        return Varied(name, BlockTunable.name, ("key", name), values)
    if ending[0] in Sysctl.ALLOWED:
        return Varied(ending[0], SYSCTL, ("key", ending[0]), values)
    return Varied(ending[0], ending[0], None, values)


def _guess(text: str) -> str:
    """Return a hint for levels without a knob: the one knob that has them all, else an example."""
    levels = {level.strip() for level in text.removeprefix("=").split(",")}
    having = [name for name in known_settings() if levels <= set(levels_of(name))]
    if len(having) == 1:
        return f"did you mean {having[0]}={text.removeprefix('=')}?"
    return "such as block.scheduler=none,mq-deadline; the command comes after --"


def parameter_of(name: str, values: str) -> Varied:
    """Return what ``-L NAME LEVEL,LEVEL`` varies."""
    return Varied(name, ARGUMENT, ("placeholder", f"{{{name}}}"), tuple(values.split(",")))


def _argv(wish: Wish) -> tuple[list[str], Varied | None]:
    """Return the command to start, and the factor that compares several; an empty one for a replay."""
    if wish.replay is not None:
        return [], None
    if len(wish.commands) > 1:
        lines = tuple(_as_line(command) for command in wish.commands)
        return [wish.shell or SHELL, "-c", COMMAND], Varied(
            "command", ARGUMENT, ("placeholder", COMMAND), lines
        )
    command = wish.commands[0]
    if wish.shell is not None or (len(command) == 1 and len(command[0].split()) > 1):
        return [wish.shell or SHELL, "-c", _as_line(command)], None
    return list(command), None


def _as_line(command: Sequence[str]) -> str:
    return command[0] if len(command) == 1 else shlex.join(command)


def _check(factors: Sequence[Varied], argv: Sequence[str], wish: Wish) -> None:
    if not wish.levels and not any(len(factor.values) > 1 for factor in factors):
        raise RequestError(
            "there is nothing to compare: no setting has two levels",
            hint="separate the levels by commas: block.scheduler=none,mq-deadline, or compare with today's value: --today; "
            "`iotrial knobs` lists the settings",
        )
    for factor in factors:
        if wish.replay is not None and factor.knob == VARIABLE:
            raise RequestError(f"{_ENVIRONMENT}{factor.name}: a replay starts no program", hint="remove it")
    texts = [*argv, *(text for command in wish.commands for text in command)]
    for name, _ in wish.parameters:
        if not any(f"{{{name}}}" in text for text in texts):
            raise RequestError(
                f"-L {name}: {{{name}}} is not in the command",
                hint=f"write {{{name}}} where the value goes",
            )


def short_names(factors: Sequence[Varied]) -> Mapping[str, str]:
    """Return a short name for each factor: the last part of its name where that is unique."""
    short = [factor.name.rpartition(".")[2] for factor in factors]
    found = {}
    for factor, name in zip(factors, short, strict=True):
        if factor.name in found:
            raise RequestError(
                twice("setting", factor.name), hint="give all its levels at once, separated by commas"
            )
        found[factor.name] = name if short.count(name) == 1 else factor.name
    return found


def _table(factor: Varied, name: str) -> dict[str, Any]:
    labels = value_labels(factor.values)
    plain = all(label == value for label, value in zip(labels, factor.values, strict=True))
    return {
        "name": _NAME.sub("_", name),
        "knob": factor.knob,
        **({} if factor.option is None else {factor.option[0]: factor.option[1]}),
        "levels": list(factor.values)
        if plain
        else [{"label": label, "value": value} for label, value in zip(labels, factor.values, strict=True)],
        **({"role": "condition"} if len(factor.values) == 1 else {}),
    }


def value_labels(values: Sequence[str]) -> list[str]:
    """Return labels as a study allows them: short, one line, without commas and plus signs, no two alike."""
    found: list[str] = []
    folded = {"all"}
    for number, value in enumerate(values, 1):
        text = " ".join(value.replace(",", " ").replace("+", " ").split())
        label = text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"
        label = label or "empty"
        found.append(f"{label} ({number})" if label.casefold() in folded else label)
        folded.add(found[-1].casefold())
    return found


def _cache(wish: Wish) -> str:
    """Return the cache state by the name that says what is cold: in place, ``cold`` is cold for data only."""
    return "cold-data" if (wish.cache, wish.lab) == ("cold", IN_PLACE) else wish.cache


def _replay(replay: Replayed, cache: str) -> dict[str, Any]:
    return {
        "name": "replay",
        "kind": "replay",
        "trace": replay.trace,
        "timing": replay.timing,
        "cache": cache,
        "checksum": replay.checksum,
        "folder": replay.folder,
    }


def _command(wish: Wish, argv: list[str]) -> dict[str, Any]:
    return {
        "name": "command",
        "kind": "command",
        "argv": argv,
        "cache": _cache(wish),
        "timeout": TIMEOUT,
        "inherit_environment": True,
        **({} if wish.prepare is None else {"prepare": [SHELL, "-c", wish.prepare]}),
        **({} if wish.cleanup is None else {"cleanup": [SHELL, "-c", wish.cleanup]}),
        **({"expect_exit": wish.expect_exit} if wish.expect_exit else {}),
        **({"stdout": wish.stdout} if wish.stdout != "pipe" else {}),
        **({"output_folder": True} if any(SCRATCH in text for text in _level_texts(wish)) else {}),
        **({"output": [_output(one) for one in wish.printed]} if wish.printed else {}),
    }


def _level_texts(wish: Wish) -> Iterator[str]:
    """Yield what the levels put into the command."""
    if len(wish.commands) > 1:
        yield from map(_as_line, wish.commands)
    yield from (values for _, values in wish.parameters)
    yield from (setting.value for level in wish.bundles for setting in level.settings)


def _output(printed: Printed) -> dict[str, str]:
    optional = {"unit": printed.unit, "better": printed.better}
    return {
        "name": printed.name,
        printed.kind: printed.expression,
        **{key: value for key, value in optional.items() if value is not None},
    }


def _shown(wish: Wish) -> str:
    if wish.replay is not None:
        return f"the replay of {wish.replay.trace}"
    return "; ".join(_as_line(command) for command in wish.commands)


def _question(factors: Sequence[Varied], wish: Wish) -> str:
    varied = [factor.name for factor in factors if len(factor.values) > 1] + [SETTINGS] * bool(wish.levels)
    if varied == ["command"]:
        return f"Which is faster: {_shown(wish)}?"
    return f"Does {' or '.join(varied)} change the time of {_shown(wish)}?"


def _line(text: str) -> str:
    """Return the text as one line that a study allows."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= 300 else f"{text[:299]}…"
