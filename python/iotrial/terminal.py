"""Sanitise untrusted text for display: escape characters that control a terminal or disguise the text.

Labels, prose, file names, messages of the kernel and of programs, and everything in a stored or imported trial may contain
any character. Control characters, bidirectional marks and invisible characters become escapes (``\\x1b``, ``\\u202e``).
The HTML and Markdown renderers do their own escaping on top of this.
"""

from __future__ import annotations

import unicodedata

#: control, format (direction, zero width, soft hyphen, tags), surrogate, line and paragraph separator
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: invisible fillers and blanks that Unicode does not class as control or format characters
_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5")


def escape(label: object) -> str:
    """Return the label on one line, with every control or invisible character escaped (``\\x1b``, ``\\u202e``)."""
    text = str(label)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if _steers(c) else c for c in text)


def escape_lines(text: object) -> str:
    """Apply ``escape`` to each line: line breaks are kept, tabs become spaces."""
    return "\n".join(escape(line.expandtabs()) for line in str(text).split("\n"))


def _steers(character: str) -> bool:
    return character in _BLANK_LETTERS or unicodedata.category(character) in _UNSEEN


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
