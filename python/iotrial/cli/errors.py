"""How an error reaches its reader: in words with a hint, or as one JSON object. Always on standard error.

Messages repeat what came from outside (labels, file names, what programs said), so they are made fit to be shown, and a
line break in one is set in: no part of a message can pass for a line of its own.
"""

from __future__ import annotations

import json
import sys

from iotrial.legible import shown_lines


def report_error(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    """Print an error. ``code`` is one of the codes in ``iotrial.errors``."""
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message, "hint": hint}}), file=sys.stderr)
        return
    print(f"iotrial: {_set_in(message)}", file=sys.stderr)
    if hint:
        print(f"hint: {_set_in(hint)}", file=sys.stderr)


def _set_in(text: str) -> str:
    return shown_lines(text).replace("\n", "\n    ")
