"""Generators of words and C sources: a second implementation, from the description in docs/probe-protocol.md."""

from __future__ import annotations

from collections.abc import Callable

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
PARAGRAPH = 4096
UNIT = 1024
Draw = Callable[[int], int]


def mixed(z: int) -> int:
    """Return the SplitMix64 finaliser of ``z``."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def draws(seed: int, index: int) -> Draw:
    """Return a function that gives word n of a file's random stream."""
    key = mixed(seed ^ mixed((index + GOLDEN) & MASK))
    return lambda n: mixed((key + (n + 1) * GOLDEN) & MASK)


def vocabulary_word(rank: int) -> str:
    """Return the word of this rank; 0 is the most frequent. Rarer words are longer."""
    bits = mixed(rank + 1)
    text = ""
    for _ in range(1 + (rank >= 8) + (rank >= 256) + (rank >= 1024)):
        text += "bdfghklmnprstvwz"[bits & 15] + "aeiouaei"[bits >> 4 & 7]
        bits >>= 7
    return text + ("", "n", "s", "t")[bits & 3]


def words(seed: int, index: int, size: int) -> bytes:
    """Return paragraphs of words with frequencies by rank as in Zipf's law."""
    draw = draws(seed, index)
    return b"".join(_paragraph(draw, p) for p in range(-(-size // PARAGRAPH)))[:size]


def _paragraph(draw: Draw, number: int) -> bytes:
    text, before, at = "", 0, 0
    while len(text) < PARAGRAPH:
        bits = draw(number * PARAGRAPH + at)
        at += 1
        if bits & 7 < 4 or before == 0:
            octave = (bits >> 3) % 13
            rank = (1 << octave) - 1 + (bits >> 8 & ((1 << octave) - 1))
        else:
            follower = mixed(before * 4 + (bits >> 3 & 3))  # one of four successors of the previous word
            rank = (follower >> 8 & 4095) >> follower % 13
        before = rank + 1
        text += vocabulary_word(rank) + (". " if bits >> 60 == 0 else " ")
    return (text[: PARAGRAPH - 1] + "\n").encode()


def c_source(seed: int, index: int, size: int) -> bytes:
    """Return units of 1024 bytes: includes and declarations, then one function each. Every eighth file is a
    header."""
    draw = draws(seed, index)
    return b"".join(_unit(draw, index, n).encode() for n in range(-(-size // UNIT)))[:size]


def _unit(draw: Draw, index: int, number: int) -> str:
    bits = draw(number * 64)
    if number == 0:
        text = _opening(index)
    elif index % 8 == 0:
        text = f"static inline uint32_t f{index:06}_{number:05}(uint32_t n)\n{{\n"
        text += f"\tuint32_t a = n, b = {bits & 0xFFFF}u, c = {bits >> 16 & 0xFF}u;\n\n"
        text = _body(draw, index, number, text)
    else:
        text = f"uint32_t f{index:06}_{number:05}(const struct f{index & ~7:06} *s, uint32_t n)\n{{\n"
        text += f"\tuint32_t a = s->low, b = n + {bits & 0xFFFF}u, c = {bits >> 16 & 0xFF}u;\n"
        text += "\tuint8_t local[64];\n\tsize_t i;\n\n"
        text += f"\tfor (i = 0; i < sizeof local; i++)\n\t\tlocal[i] = {bits >> 24 & 0xFF};\n"
        text = _body(draw, index, number, text)
    return _remark(draw, number, text)


def _opening(index: int) -> str:
    head = f"f{index & ~7:06}"
    if index % 8 == 0:
        text = "#pragma once\n#include <stdint.h>\n\n"
        text += f"struct {head} {{\n\tuint32_t low, high;\n\tuint64_t sum;\n\tuint8_t bytes[32];\n}};\n\n"
        for other in range(index + 1, index + 8):
            text += f"uint32_t f{other:06}_00001(const struct {head} *s, uint32_t n);\n"
        return text
    text = "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
    text += f'#include "{head}"\n'
    return text + ("\nint main(void)\n{\n\treturn EXIT_SUCCESS;\n}\n" if index == 1 else "")


def _body(draw: Draw, index: int, number: int, text: str) -> str:
    at = 1
    while len(text) < 800:
        text += _statement(draw(number * 64 + at), index, number)
        at += 1
    return text + "\treturn a ^ b ^ c;\n}\n"


def _statement(bits: int, index: int, number: int) -> str:
    x, y, z = ("abc"[(bits >> shift & 0xFF) % 3] for shift in (8, 16, 24))
    few, many = bits >> 32 & 31, bits >> 40 & 0xFFFF
    plain = (
        f"\tif ({x} > {many}u)\n\t\t{y} ^= {z} >> {few};\n\telse\n\t\t{x} += {z} * {many}u;\n",
        f"\tswitch ({x} % {few + 3}u) {{\n\tcase 0:\n\t\t{y} += {many}u;\n\t\tbreak;\n\tcase 1:\n\t\t"
        f"{z} ^= {y};\n\t\tbreak;\n"
        f"\tdefault:\n\t\t{x}--;\n\t}}\n",
        f"\twhile ({x} > {many}u) {{\n\t\t{x} /= {few + 2}u;\n\t\t{y} += {x};\n\t}}\n",
    )
    if index % 8 == 0:
        return plain[(bits & 7) % 3]
    own, header = f"f{index:06}", f"f{index & ~7:06}_00001({y})"
    before = f"{own}_{number - 1:05}(s, {y})" if number > 1 else header
    other = f"f{(index & ~7) + 1 + few % (index % 8 - 1):06}_00001(s, {y})" if index % 8 > 1 else header
    return (
        *plain,
        f"\tfor (i = 0; i < {few + 8}; i++)\n\t\t{x} += s->bytes[(i * {many}u) % sizeof s->bytes] ^ local[i];\n",
        f"\t{x} += {before};\n",
        f"\t{x} ^= {other};\n",
        f'\tif ({x} == {many}u)\n\t\tprintf("{own}: %u of %u\\n", {y}, {z});\n',
        f"\tmemcpy(local + {few}, s->bytes, {few + 1});\n\t{x} += local[{few}];\n",
    )[bits & 7]


def _remark(draw: Draw, number: int, text: str) -> str:
    """Pad the text to one unit with a comment."""
    text, at = text + "/*", 32
    while len(text) < UNIT:
        text += " " + vocabulary_word(draw(number * 64 + at) & 1023)
        at += 1
    return text[: UNIT - 4] + " */\n"
