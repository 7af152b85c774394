"""Text from outside, made fit to be shown: what would steer a terminal or disguise the text is told instead of obeyed.

Labels, prose, file names, messages of the kernel and of programs, and everything in a stored or imported trial may hold
any character. Here control characters, marks of direction, and characters that cannot be seen become escapes
(``\\x1b``, ``\\u202e``). Escaping for HTML or Markdown is those renderers' own work, on top of this.
"""

from __future__ import annotations

import unicodedata

#: control, format (direction, zero width, soft hyphen, tags), surrogate, line and paragraph separator
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
#: fillers and blanks that are letters to Unicode, and have no width or look
_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5")


def shown(label: object) -> str:
    """The label on one line, with every character that steers or hides made visible (``\\x1b``, ``\\u202e``)."""
    text = str(label)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(c) if _steers(c) else c for c in text)


def shown_lines(text: object) -> str:
    """As ``shown``, line by line: its own line breaks stay, tabs become blanks."""
    return "\n".join(shown(line.expandtabs()) for line in str(text).split("\n"))


def _steers(character: str) -> bool:
    return character in _BLANK_LETTERS or unicodedata.category(character) in _UNSEEN


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
