"""The outermost layer of a packed trial: gzip, lines, JSON, and the digest over all of it. Pure.

Whatever the file claims, at most one line is held in memory at a time: the stream is decompressed in small
pieces, and each is counted before the next is read. ``zlib`` itself checks the CRC and the length at the end.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import string
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from iotrial.errors import RequestError
from iotrial.study.schema import printable, shown

FORMAT = "iotrial packed trial"
VERSION = 2  # 1 had histograms as pairs

MAX_PACKED = 512 << 20
MAX_BYTES = 2 << 30
MAX_LINE = 4 << 20
MAX_RATIO = 200  # unpacked to packed bytes, checked above MAX_UNASKED; JSON of numbers gives 4 to 12
MAX_UNASKED = 16 << 20
MAX_DEPTH = 16
MAX_TEXT = 1 << 20
MAX_WHOLE = 2**63 - 1

_GZIP = b"\x1f\x8b\x08\x00"  # deflate, no name, no comment, no extra field
_PIECE = 1 << 16


class PackedError(RequestError):
    """A file that is not a packed trial, or is not valid; nothing was stored."""

    code = "bad_packed_trial"

    def __init__(self, where: str, message: str, *, line: int | None = None, hint: str | None = None) -> None:
        super().__init__(f"{where}{f', line {line}' if line else ''}: {message}", hint=hint)


_CUT_OFF = "is cut off"
_FOLLOWED = "something follows its end"


def too_large(where: str, most: int, *, line: int | None = None) -> PackedError:
    return PackedError(where, f"is larger than {most >> 20} MiB, the maximum", line=line)


def _not_packed(where: str) -> PackedError:
    return PackedError(where, "is not a packed trial", hint="`iotrial export` creates one")


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the kind of its record, the record as parsed JSON, and the version of the file's format."""

    number: int
    kind: str
    value: Any
    version: int


def read_lines(file: BinaryIO, where: str) -> Iterator[Line]:
    """Yield the records after the header, and the end record, in order. Raises PackedError.

    The end record's digest has been compared with the bytes before it. The file is valid once the iterator is
    exhausted.
    """
    digest = hashlib.sha256()
    ended = False
    version = VERSION
    for number, raw in enumerate(_split(_unpacked(file, where), where), start=1):
        if ended:
            raise PackedError(where, _FOLLOWED, line=number)
        value = _parsed(raw, where, number)
        if number == 1:
            version = _version(value, where)
        else:
            if len(value) != 1:
                raise PackedError(where, "expected an object", line=number)
            kind, inner = next(iter(value.items()))
            if kind == "end":
                ended = True
                found = inner.get("sha256") if isinstance(inner, dict) else None
                if found != digest.hexdigest():
                    raise PackedError(
                        where,
                        "its digest does not match what it holds",
                        line=number,
                        hint="it was damaged or changed in transit; get another copy",
                    )
            yield Line(number, kind, inner, version)
        digest.update(raw)
        digest.update(b"\n")
    if not ended:
        raise PackedError(where, _CUT_OFF)


def write_lines(file: BinaryIO, lines: Iterable[tuple[str, Any]], counts: dict[str, int]) -> str:
    """Write header, lines and end record; return the digest. ``counts`` is read once all lines are written.

    The same lines give the same bytes: the gzip header holds neither time nor name.
    """
    packer = zlib.compressobj(level=6, wbits=31)
    digest = hashlib.sha256()

    def put(value: object) -> None:
        raw = as_line(value)
        digest.update(raw)
        file.write(packer.compress(raw))

    put({"format": FORMAT, "version": VERSION})
    for kind, value in lines:
        put({kind: value})
    found = digest.hexdigest()
    put({"end": {**counts, "sha256": found}})
    file.write(packer.flush())
    return found


def as_line(value: object) -> bytes:
    """Return one line of the file. ValueError for a number that is not finite."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _unpacked(file: BinaryIO, where: str) -> Iterator[bytes]:
    start = _read(file, len(_GZIP), where)
    if start != _GZIP:
        raise _not_packed(where)
    stream = zlib.decompressobj(wbits=31)
    packed, unpacked, waiting = len(start), 0, start
    while not stream.eof:
        if not waiting:
            waiting = _read(file, _PIECE, where)
            packed += len(waiting)
            if not waiting:
                raise PackedError(where, _CUT_OFF)
            if packed > MAX_PACKED:
                raise too_large(where, MAX_PACKED)
        try:
            piece = stream.decompress(waiting, _PIECE)
        except zlib.error as error:
            raise PackedError(where, f"is damaged ({error})") from error
        waiting = stream.unconsumed_tail
        unpacked += len(piece)
        if unpacked > MAX_BYTES or (unpacked > MAX_UNASKED and unpacked > MAX_RATIO * packed):
            raise PackedError(where, "unpacks to more than the maximum of a trial")
        yield piece
    if stream.unused_data or _read(file, 1, where):
        raise PackedError(where, _FOLLOWED)


def _read(file: BinaryIO, size: int, where: str) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise PackedError(where, f"cannot be read: {error.strerror}") from error


def _split(pieces: Iterable[bytes], where: str) -> Iterator[bytes]:
    rest, number = bytearray(), 1
    for piece in pieces:
        rest += piece
        if b"\n" in piece:
            *whole, last = rest.split(b"\n")
            for line in whole:
                yield bytes(line)
                number += 1
            rest = last
        if len(rest) > MAX_LINE:
            raise too_large(where, MAX_LINE, line=number)
    if rest:
        raise PackedError(where, _CUT_OFF, line=number)


def _parsed(raw: bytes, where: str, number: int) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_without_doubles,
            parse_constant=_no_constant,
        )
        if not _is_plain(text):
            check_plain(value, MAX_DEPTH)
    except UnicodeDecodeError:
        raise PackedError(where, "is not UTF-8 text", line=number) from None
    except RecursionError:
        raise PackedError(where, "is nested too deeply", line=number) from None
    except ValueError as error:
        raise PackedError(where, shown(str(error))[1:-1], line=number) from None
    if not isinstance(value, dict):
        raise PackedError(where, "expected an object", line=number)
    return value


def _version(value: dict[str, Any], where: str) -> int:
    """Return the version of the file's format, from its header."""
    if value.get("format") != FORMAT:
        raise _not_packed(where)
    version = value.get("version")
    if type(version) is int and version > VERSION:
        raise PackedError(
            where,
            f"was written by a newer iotrial (version {version} of the format, this one knows {VERSION})",
            hint="update iotrial",
        )
    if type(version) is not int or version < 1 or set(value) != {"format", "version"}:
        raise _not_packed(where)
    return version


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a finite number")


_STRING = re.compile(r'"[^"]*"')  # in a text without escapes
#: Maps every digit to 0 and all else to blanks; keeps points and exponents.
_SHAPES = bytes(
    ord("0") if chr(c) in string.digits else c if chr(c) in ".e" else ord("e" if chr(c) == "E" else " ")
    for c in range(256)
)
#: Numbers that may be too large: 64 bits have 19 digits; with a two-digit exponent a number is always finite.
_LARGE = (b" " + 19 * b"0", b"e000")
_BRACKETS = str.maketrans("", "", "".join(map(chr, {*range(128)} - {*b"[]{}"})))


def _is_plain(text: str) -> bool:
    """Return whether the text alone proves that ``check_plain`` finds nothing.

    True for text with only printable ASCII, no escapes, no large numbers and few levels of brackets. Nearly
    every run passes, and is not checked value by value.
    """
    if not (text.isascii() and text.isprintable()) or len(text) > MAX_TEXT or "\\" in text:
        return False
    values = _STRING.sub("", text)
    shapes = values.encode().translate(_SHAPES, b"+")
    if any(large in shapes for large in _LARGE):
        return False
    brackets = values.translate(_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace("[]", "").replace("{}", "")  # the innermost level
        if not brackets:
            return True
    return False


def check_plain(value: object, depth: int) -> None:
    """Raise ValueError if a value is nested too deeply, not finite, too large, or text that cannot be shown."""
    if isinstance(value, str):
        if not (value.isascii() and value.isprintable()):
            printable(value.replace("\n", " ").replace("\t", " "))
        if len(value) > MAX_TEXT:
            raise ValueError(f"a text is longer than {MAX_TEXT >> 20} MiB")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number is not finite")
    elif isinstance(value, int):
        if abs(value) > MAX_WHOLE:
            raise ValueError("a whole number does not fit into 64 bits")
    elif isinstance(value, dict | list):
        if depth == 0:
            raise ValueError("is nested too deeply")
        if isinstance(value, dict):
            for key, inner in value.items():
                check_plain(key, depth)
                check_plain(inner, depth - 1)
        else:
            for inner in value:
                check_plain(inner, depth - 1)
