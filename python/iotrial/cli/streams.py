"""Set up standard output and error once, so that a full disk, a closed stream or an ASCII locale gives a
clear error.

A failed write to standard output raises OutputError (exit status 1), once; a closed pipe stays a
BrokenPipeError. Messages that cannot be written to standard error are dropped: a trial does not end because
its progress cannot be shown. A character that the locale's encoding lacks is printed as a similar one, or as
"?". LC_ALL=C means ASCII.
"""

from __future__ import annotations

import codecs
import io
import locale
import os
import sys
import unicodedata
from typing import TextIO

from iotrial.errors import IotrialError

_RESEMBLING = {
    **dict.fromkeys("–—−‐‑─━╌┄", "-"),
    **dict.fromkeys("│┃╎┆▏▕", "|"),
    **dict.fromkeys("█▉▊▋▌▍▎■▪●", "#"),
    **dict(zip("▁▂▃▄▅▆▇", "_.:-=+*", strict=True)),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛┣┫┳┻╋", "+"),
    **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("‘’‚", "'"),
    **dict.fromkeys("•·∙", "*"),
    **dict(zip("×≈→←µμ", "x~><uu", strict=True)),
    "±": "+/-",
    "≤": "<=",
    "≥": ">=",
}


class OutputError(IotrialError):
    """Standard output cannot be written: its disk is full, or it was closed."""

    code = "output"


class _Output(io.FileIO):
    """Raw standard output. Data after a failed write is discarded: the failure is reported once, not again at
    exit."""

    failed = False

    def write(self, data: object) -> int:
        if self.failed:
            return memoryview(data).nbytes  # type: ignore[arg-type]
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError as error:
            self.failed = True
            raise OutputError(
                f"writing to standard output: {error.strerror}",
            ) from error


class _Messages(io.FileIO):
    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError:
            return memoryview(data).nbytes  # type: ignore[arg-type]


def set_up() -> None:
    """Replace ``sys.stdout`` and ``sys.stderr`` if they are this process's own."""
    _open_closed()
    codecs.register_error("iotrial.resembling", _resembling)
    if _own(sys.stdout, 1):
        sys.stdout = _stream(_Output(1, "wb", closefd=False), sys.stdout, line_buffering=False)
    if _own(sys.stderr, 2):
        sys.stderr = _stream(_Messages(2, "wb", closefd=False), sys.stderr, line_buffering=True)


def output_failed() -> bool:
    """Return whether a write to standard output has failed."""
    buffer = getattr(sys.stdout, "buffer", None)
    return bool(getattr(getattr(buffer, "raw", None), "failed", False))


def _open_closed() -> None:
    """Open /dev/null for each closed standard stream. Otherwise the next file that is opened, such as the
    store, would get its descriptor number, and the printed text with it.

    Standard output is opened read-only, so writing to it still fails.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # open() returns the lowest free number, which is this one
            os.set_inheritable(number, True)


def _own(stream: TextIO | None, number: int) -> bool:
    try:
        return stream is None or stream.fileno() == number
    except (OSError, ValueError):  # an in-memory stream of a test
        return False


def _stream(raw: io.FileIO, before: TextIO | None, *, line_buffering: bool) -> TextIO:
    if before is not None:
        before.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=_encoding(before),
        errors="iotrial.resembling",
        line_buffering=line_buffering or raw.isatty(),
        write_through=bool(getattr(before, "write_through", False)),
    )


def _encoding(before: TextIO | None) -> str:
    """Return the encoding of a stream: Python's choice, but ASCII with LC_ALL=C, which Python takes for UTF-8."""
    chosen = any(os.environ.get(name) for name in ("PYTHONUTF8", "PYTHONIOENCODING"))
    if os.environ.get("LC_ALL") in ("C", "POSIX") and not chosen:
        return "ascii"
    return locale.getencoding() if before is None else before.encoding


def _resembling(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(map(_plain, text)), error.end


def _plain(character: str) -> str:
    known = _RESEMBLING.get(character)
    if known is not None:
        return known
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"
