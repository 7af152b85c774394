"""How an error reaches its reader: in words with a hint, or as one JSON object. Always on standard error."""

from __future__ import annotations

import json
import sys


def report_error(code: str, message: str, hint: str | None, *, as_json: bool) -> None:
    """Print an error. ``code`` is one of the codes in ``iotrial.errors``."""
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message, "hint": hint}}), file=sys.stderr)
        return
    print(f"iotrial: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
