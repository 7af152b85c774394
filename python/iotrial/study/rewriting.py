"""Change a study file into another while keeping its author's order, comments and spelling.

The text may be untrusted. It is first read as a study, within the reader's limits; then only the places in
which the wanted study differs are changed; then the result is read again and returned only if it equals the
wanted study.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
import unicodedata
from collections.abc import Sequence
from typing import Any

import tomlkit
from msgspec import structs
from tomlkit.exceptions import TOMLKitError

from iotrial.errors import StudyError
from iotrial.study.model import Budget, Design, DesignKind, Factor, Setting, Study
from iotrial.study.reader import read_study
from iotrial.terminal import escape

_HEAD = re.compile(r"\[\[?[^\[\]#]+\]\]?[ \t]*\r?")


def rewritten(text: str, wanted: Study, *, origin: str, comment: Sequence[str] = ()) -> str:
    """Return the text of ``wanted``, made from ``text`` by changing what differs.

    ``comment`` goes on top, one item per line. Raises StudyError if ``text`` is not a study or cannot be
    changed into the wanted one.
    """
    before = read_study(text, origin, trusted=False)
    try:
        document = tomlkit.parse(_comments_inside(text))
        _change(document, before, wanted)
        changed = tomlkit.dumps(document)
    except (
        TOMLKitError,
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        raise _refused(origin, f"the layout of the file prevents changing it ({escape(error)})") from error
    lines = [part for line in comment for part in textwrap.wrap(escape(line), 110, subsequent_indent="  ")]
    made = "".join(f"# {line}\n" for line in lines) + ("\n" if comment else "") + _plain(changed)
    try:
        after = read_study(made, origin, trusted=False)
    except StudyError as error:
        raise _refused(origin, f"the written file cannot be read: {error.message}") from error
    if not same_study(after, wanted):
        raise _refused(origin, "the layout of the file prevents changing it reliably")
    return made


def _comments_inside(text: str) -> str:
    """Move comments that stand directly above a table header below it, so that they stay with the table.

    ``tomlkit`` treats them as the end of the previous table.
    """
    lines: list[str] = []
    above: list[str] = []
    quoted = False  # inside a multi-line string, which may contain what looks like a comment above a header
    for line in text.split("\n"):
        if not quoted and _HEAD.fullmatch(line):
            lines += [line, *above]
            above = []
        elif not quoted and line.startswith("#"):
            above.append(line)
        else:
            lines += [*above, line]
            above = []
            quoted ^= bool((line.count('"""') + line.count("'''")) % 2)
    moved = "\n".join([*lines, *above])
    return moved if tomllib.loads(moved) == tomllib.loads(text) else text


def same_study(one: Study, other: Study) -> bool:
    """Return whether two studies are equal, ignoring their text, line numbers and origin."""
    return _essence(one) == _essence(other)


def _refused(origin: str, message: str) -> StudyError:
    return StudyError(
        f"no follow-up could be made: {message}",
        file=origin,
        hint="write the study in plain tables ([study], [[factor]], ...) and run it again",
    )


def _essence(study: Study) -> Study:
    factors = tuple(structs.replace(factor, line=None) for factor in study.factors)
    title = study.title or study.name
    return structs.replace(study, factors=factors, title=title, text="", origin="", trusted=False)


def _plain(text: str) -> str:
    """Replace control characters that could affect a terminal.

    Only comments can contain them; the reader rejects them elsewhere.
    """
    return "".join(
        escape(c) if c not in "\t\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") else c
        for c in text.replace("\r\n", "\n")
    )


def _change(document: Any, before: Study, wanted: Study) -> None:
    head = document["study"]
    for key in ("name", "question", "why", "margin", "alpha"):
        if getattr(before, key) != getattr(wanted, key):
            head[key] = getattr(wanted, key)
    if wanted.title in ("", wanted.name):
        head.pop("title", None)
    elif before.title != wanted.title:
        head["title"] = wanted.title
    _budget(document, before.budget, wanted.budget)
    _design(document, before.design, wanted.design)
    _factors(document, before, wanted)
    _fixed(document, before, wanted)
    _workloads(document, before, wanted)
    _claims(document, before, wanted)


def _budget(document: Any, before: Budget, wanted: Budget) -> None:
    if before == wanted:
        return
    if "budget" not in document:
        document["budget"] = tomlkit.table()
    if before.time_s != wanted.time_s:
        document["budget"]["time"] = f"{wanted.time_s:.12g} s"
    if before.blocks != wanted.blocks:
        document["budget"]["blocks"] = wanted.blocks


def _design(document: Any, before: Design, wanted: Design) -> None:
    if before == wanted:
        return
    document.pop("design", None)
    if wanted == Design():
        return
    table = tomlkit.table()
    table["kind"] = wanted.kind.value
    if wanted.kind is DesignKind.FRACTIONAL:
        table["resolution"] = wanted.resolution
    if wanted.fold_over:
        table["fold_over"] = True
    if wanted.interactions:
        table["interactions"] = [f"{first}:{second}" for first, second in wanted.interactions]
    if wanted.repeats != 1:
        table["repeats"] = wanted.repeats
    document["design"] = table


def _factors(document: Any, before: Study, wanted: Study) -> None:
    tables = document["factor"]
    now = {factor.name: factor for factor in wanted.factors}
    new = [factor for factor in wanted.factors if factor not in before.factors]
    replaced = [factor.name for factor in new if not _same_levels(before, factor)]
    for index in reversed(range(len(before.factors))):
        name = before.factors[index].name
        if name not in now or name in replaced:
            del tables[index]
            continue
        if now[name].default != before.factors[index].default:
            tables[index]["default"] = list(now[name].default)
    for factor in new:
        if factor.name in replaced:
            _insert(document, "factor", _factor_table(factor), first=True)


def _same_levels(before: Study, factor: Factor) -> bool:
    return any(one.name == factor.name and one.levels == factor.levels for one in before.factors)


def _factor_table(factor: Factor) -> Any:
    """Build the table of a factor with every level written as a bundle."""
    table = tomlkit.table()
    table["name"] = factor.name
    levels = tomlkit.array()
    for level in factor.levels:
        entry = tomlkit.inline_table()
        entry["label"] = level.label
        settings = tomlkit.array()
        for setting in level.settings:
            one = tomlkit.inline_table()
            one.update(_setting(setting))
            settings.append(one)
        entry["set"] = settings
        levels.append(entry)
    table["levels"] = levels.multiline(True)
    table["reference"] = factor.reference
    if factor.whole_plot:
        table["plot"] = "whole"
    return table


def _setting(setting: Setting) -> dict[str, str]:
    return {"knob": setting.knob, "level": setting.value, **dict(setting.options)}


def _fixed(document: Any, before: Study, wanted: Study) -> None:
    for setting in wanted.fixed[len(before.fixed) :]:
        table = tomlkit.table()
        table.update(_setting(setting))
        _insert(document, "fixed", table)


def _insert(document: Any, name: str, table: Any, *, first: bool = False) -> None:
    """Add one ``[[name]]`` table before or after the existing ones."""
    tables = document.get(name)
    if not tables:
        document.pop(name, None)
        tables = tomlkit.aot()
        tables.append(table)
        document[name] = tables
        return
    if isinstance(tables, tomlkit.items.Array):
        inline = tomlkit.inline_table()
        inline.update(table.unwrap())
        table = inline
    if first:
        tables.insert(0, table)
    else:
        tables.append(table)


def _workloads(document: Any, before: Study, wanted: Study) -> None:
    for index, (old, new) in enumerate(zip(before.workloads, wanted.workloads, strict=True)):
        if old.default != new.default:
            document["workload"][index]["default"] = new.default


def _claims(document: Any, before: Study, wanted: Study) -> None:
    if len(before.claims) == len(wanted.claims):
        return
    tables = document["claim"]
    for index in reversed(range(len(before.claims))):
        if before.claims[index] not in wanted.claims:
            del tables[index]
    if not len(tables):
        document.pop("claim", None)
