"""bonnie++: its CSV lines (format 2, of bonnie++ 1.9x and 2.00; format 1, of 1.03) and its text table.

Each line is one run, grouped by machine name or the file's label. The order of the fields is
bon_csv2html(1)'s. "+++" means that a phase was too short to be measured; it is counted and left out. If a
file holds the CSV line below the table, only the line is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from iotrial.audits.importers.contract import (
    MAX_ROWS,
    Format,
    Imported,
    ReadOptions,
    Source,
    damaged,
    label,
    no_result,
)
from iotrial.audits.model import Condition, Observation
from iotrial.units import measured

_IO = ("putc", "put_block", "rewrite", "getc", "get_block", "seeks")
_FILES = ("seq_create", "seq_stat", "seq_del", "ran_create", "ran_stat", "ran_del")
_LINE_2 = re.compile(r"1\.9[0-9][a-z]?,[12]\.[0-9]{1,2}[^,]{0,8},[^,]{0,200},[0-9]{1,6},.*")
_LINE_1 = re.compile(r"[^,]{1,200},[0-9]{1,9}[MGk]?,(?:[0-9.+]{0,12},){11,13}[^,]{0,20},.*")
_SIZE = re.compile(r"[0-9]{1,9}[MGkT]?(?::[0-9a-zMGk]{0,12}){0,4}")
_CELL = re.compile(r"(?:\++|[0-9]{1,12}(?:\.[0-9]{1,6})?[kMmgG]?)")
_LATENCY = re.compile(r"([0-9]{1,12})(us|ms|s)")
_LATENCIES_LIKE = re.compile(r"\b[0-9]{1,12}(?:us|ms)\b")
#: a name with blanks, or one that touches the size
_NAMED = re.compile(
    r"(.{1,60}?)([0-9]{1,9}[MGkT](?::[0-9a-zMGk]{0,12}){0,4})((?:\s+[0-9.+]+[kMmgG]?){8,12})\s*"
)
_CONCURRENCY = re.compile(r"Concurrency\s+([0-9]{1,6})\s+-Per Chr-")
_FEWEST_COMMAS = 5
#: cells in a row of the text table, without and with the tests of single characters
_CELLS = (8, 12)
_LATENCIES = (4, 6)
_SCALE = {"k": 1.0, "m": 1024.0, "g": 1024.0**2}
_TOO_FAST = "+++ in {0} places: too fast to be measured, so not in this audit"


def recognises(text: str) -> bool:
    lines = text.split("\n", 400)[:400]
    return any(len(line) < 2000 and (_LINE_2.fullmatch(line) or _is_old(line)) for line in lines) or (
        "Sequential Output" in text[: 1 << 16] and "Sequential Input" in text[: 1 << 16]
    )


def _is_old(line: str) -> bool:
    """Return whether a line is one of bonnie++ 1.03: a size in the second field, and as many fields as it prints."""
    fields = line.strip().split(",")
    return (
        _whole(fields, newer=False) and fields[1][-1:] in ("M", "G") and bool(_LINE_1.fullmatch(line.strip()))
    )


def read(source: Source, _: ReadOptions) -> Imported:
    lines = [line for line in source.text.split("\n")[:MAX_ROWS] if len(line) < 2000]
    observations: list[Observation] = []
    unread: list[str] = []
    fast = 0
    newer = {line for line in lines if _LINE_2.fullmatch(line.strip())}
    older = {line for line in lines if line not in newer and _LINE_1.fullmatch(line.strip())}
    ran = sorted((line for line in lines if line in newer or line in older), key=older.__contains__)
    versions = {line: line.split(",")[1] if line in newer else "1.03" for line in ran}
    several = len(set(versions.values())) > 1
    for line in ran:
        fields = line.strip().split(",")
        if not _whole(fields, newer=line in newer):
            unread.append(damaged(source.name, line.strip()[:40]))
            continue
        version = versions[line] if several else ""
        observations += _of_fields(source, fields, unread, version, newer=line in newer)
        fast += sum("+++" in field for field in fields)
    unread += [
        damaged(source.name, line.strip()[:40])
        for line in lines
        if line.count(",") > _FEWEST_COMMAS and line not in versions and "format_version" not in line
    ]
    if not observations:
        for group, size, words, text, clients in _table(lines):
            latencies = all(map(_LATENCY.fullmatch, words))
            # the tests of files have a number of files, the others a size with its unit
            fits = ("Create" in text) == size.partition(":")[0].isdigit()
            fits &= bool(size) and len(words) in (_LATENCIES if latencies else _CELLS)
            if not fits or not (latencies or all(map(_CELL.fullmatch, words))):
                unread.append(damaged(source.name, " ".join(words)[:60]))
                continue
            observations += _of_words(source, group, size, words, text, clients)
            zeros = sum(measured(word) == 0 for word in words[0::2])
            unread += [f"{source.name}: {zeros} values of 0 ({' '.join(words)[:60]})"] if zeros else []
            fast += sum("+++" in word for word in words)
    if not observations and not fast:
        raise no_result(source, "bonnie++", unread)
    unread += [_TOO_FAST.format(fast)] if fast else []
    return Imported(tuple(observations), unread=tuple(unread))


def _whole(fields: Sequence[str], *, newer: bool) -> bool:
    """Return whether a line has the fields of its version: 1.03 has 14 or, with the tests of files, 27; 1.98 has 50."""
    return len(fields) in ((48, 50) if newer else (14, 27))


def _of_fields(
    source: Source, fields: Sequence[str], unread: list[str], version: str, *, newer: bool
) -> Iterator[Observation]:
    """Yield the values of one line. ``version``: where the file has lines of several versions, else ""."""
    if newer:
        first = 9 if len(fields) >= 50 else 7  # seeks and seekers were added in 1.98
        group, size = source.label or label(fields[2]), fields[5]
        files, latencies = first + 17, first + 29
        counts = ":".join(filter(None, fields[first + 12 : files]))
        work = [("size", size)] + [("concurrency", fields[3])] * (fields[3] not in ("", "1"))
    else:
        group, size, first, files, latencies = source.label or label(fields[0]), fields[1], 2, 15, len(fields)
        counts, work = fields[14] if len(fields) > 14 else "", [("size", size)]
    of_version = [("version", version)]
    for names, at, unit in ((_IO, first, "KiB/s"), (_FILES, files, "1/s")):
        condition = _condition((work if names is _IO else [("files", counts)]) + of_version)
        for i, name in enumerate(names):
            text = fields[at + 2 * i] if at + 2 * i < len(fields) else ""
            value = measured(text)
            busy = fields[at + 2 * i + 1] if at + 2 * i + 1 < len(fields) else ""
            if not value and (text.strip("+") or text != ("+++++" if busy else "")):
                unread.append(f"{source.name}: {name} ({label(text)[:20]})")
            if value:
                yield Observation(
                    group,
                    name,
                    "1/s" if name == "seeks" else unit,
                    value,
                    condition,
                    step=_step(text),
                )
    for i, name in enumerate((*_IO, *_FILES)):
        text = fields[latencies + i] if latencies + i < len(fields) else ""
        match = _LATENCY.fullmatch(text)
        if match is None and text:
            unread.append(f"{source.name}: {name}_latency ({label(text)[:20]})")
        if match:
            condition = _condition((work if name in _IO else [("files", counts)]) + of_version)
            yield Observation(group, f"{name}_latency", match[2], float(match[1]), condition, step=1.0)


def _condition(pairs: Sequence[tuple[str, str]]) -> Condition:
    return tuple((name, label(text)) for name, text in pairs if text)


def _table(lines: Sequence[str]) -> Iterator[tuple[str, str, list[str], str, str]]:
    """Yield the rows of the text tables: name, size or number of files, cells; the header above them, and its concurrency."""
    header = group = size = clients = ""
    for line in lines:
        if match := _CONCURRENCY.match(line):
            clients = match[1]
            continue
        if len(_LATENCIES_LIKE.findall(line)) > 1:
            yield group, size if line.split()[-1][0].isdigit() else "", line.split()[1:], header, clients
            continue
        if "--Sequential" in line or "/sec %CP" in line:
            header = line if "--Sequential" in line or not header else header + line
            continue
        words = line.split()
        at = next((i for i in range(len(words)) if _SIZE.fullmatch(words[i]) and i <= 1), None)
        if header and "Create" not in header and (match := _NAMED.fullmatch(line)):
            group, size = match[1].strip() or group, match[2]
            yield group, size, match[3].split(), header, clients
        elif header and at is not None and len(words) > at + 1:
            group, size = words[0] if at else group, words[at]
            yield group, size, words[at + 1 :], header, clients
        elif header and sum(_CELL.fullmatch(word) is not None for word in words) >= min(_CELLS):
            yield group, "", words, header, clients


def _of_words(
    source: Source, group: str, size: str, words: Sequence[str], header: str, clients: str
) -> Iterator[Observation]:
    group = source.label or label(group or source.stem)
    latencies = [match for word in words if (match := _LATENCY.fullmatch(word))]
    values = latencies or words[0::2]
    names: Sequence[str] = _FILES if "Create" in header else _IO
    work = [("files" if names is _FILES else "size", size)]
    condition = _condition(work + [("concurrency", clients)] * (names is _IO and clients not in ("", "1")))
    if names is _IO and len(values) == 4:  # -f: no per-character tests
        names = ("put_block", "rewrite", "get_block", "seeks")
    if latencies:
        for name, match in zip(names, latencies, strict=False):
            yield Observation(group, f"{name}_latency", match[2], float(match[1]), condition, step=1.0)
        return
    for name, word in zip(names, words[0::2], strict=False):
        scale = 1.0 if name == "seeks" or names is _FILES else _SCALE.get(word[-1].lower(), 1.0)
        value = measured(word.rstrip("kMmgG"))
        if value:
            unit = "1/s" if names is _FILES or name == "seeks" else "KiB/s"
            yield Observation(
                group, name, unit, value * scale, condition, step=_step(word.rstrip("kMmgG")) * scale
            )


def _step(text: str) -> float:
    return 10.0 ** -len(text.strip().partition(".")[2])


FORMAT = Format("bonnie", "bonnie++", recognises, read, rank=20)
