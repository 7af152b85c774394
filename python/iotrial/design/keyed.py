"""Keyed random number generator: every draw of a plan is a pure function of its seed.

Why our own: a plan must be the same on every machine and in every later version, so that a stored
trial can be checked against its seed. Library generators change their algorithms between releases.

The stream of (seed, domain, coordinates) is SHA-256 in counter mode:

* the *key* is the 16 bytes of the seed, then the domain, then each coordinate. A string (such as the domain)
  is encoded as the byte ``t``, its length in bytes as 4 bytes, and its UTF-8; an integer as the byte
  ``i`` and 8 bytes, two's complement. All numbers are big-endian. No two lists of coordinates share a key;
* digest number c (c = 0, 1, 2, ...) is SHA-256(key followed by c as 8 bytes). It gives four 64-bit
  words, in byte order;
* ``below(m)`` takes words until one is less than the largest multiple of m that is at most 2**64, and
  returns it modulo m: all results are exactly equally likely. Every call takes at least one word;
* ``sample(n, k)`` is the first k steps of the Fisher-Yates shuffle of 0 .. n-1: for i = 0 .. k-1, swap the
  elements at i and i + below(n - i). ``permutation(n)`` is ``sample(n, n)``.
"""

from __future__ import annotations

import hashlib
import operator
import os
import struct
from functools import lru_cache

SEED_DIGITS = 32
_WORDS_PER_DIGEST = 4
_FOUR_WORDS = struct.Struct(">4Q")
_SPACE = 1 << 64
#: up to this many draws are faster one by one than together
_FEW = 32


class Stream:
    """The random words of one (seed, domain, coordinates), in order. ``seed`` is 32 hexadecimal digits.

    Raises ValueError for a malformed seed, OverflowError for an integer beyond 64 bits.
    """

    def __init__(self, seed: str, domain: str, *coordinates: int | str) -> None:
        key = seed_bytes(seed) + b"".join(_encoded(part) for part in (domain, *coordinates))
        self._keyed = hashlib.sha256(key)
        self._digests = 0
        self._words: list[int] = []
        self._next = 0

    def word(self) -> int:
        """Return the next 64-bit word."""
        if self._next == len(self._words):
            self._words = list(_FOUR_WORDS.unpack(self._digest()))
            self._next = 0
        self._next += 1
        return self._words[self._next - 1]

    def below(self, bound: int) -> int:
        """Return the next integer, uniform in 0 .. bound-1; 1 <= bound <= 2**64."""
        if not 1 <= bound <= _SPACE:
            raise ValueError(f"bound {bound} is not in 1 .. 2**64")
        limit = _SPACE - _SPACE % bound
        while (word := self.word()) >= limit:
            pass
        return word % bound

    def permutation(self, n: int) -> tuple[int, ...]:
        """Return a uniformly random permutation of 0 .. n-1."""
        return self.sample(n, n)

    def sample(self, n: int, k: int) -> tuple[int, ...]:
        """Return k distinct integers of 0 .. n-1 in uniformly random order; 0 <= k <= n."""
        if not 0 <= k <= n:
            raise ValueError(f"cannot draw {k} of {n} without repetition")
        items = list(range(n))
        for i, step in enumerate(self._steps(n, k)):
            j = i + step
            items[i], items[j] = items[j], items[i]
        return tuple(items[:k])

    def _steps(self, n: int, k: int) -> list[int]:
        """Return k draws below(n), below(n - 1), ...; all at once if no word is rejected (almost always)."""
        if k <= _FEW:
            return [self.below(n - i) for i in range(k)]
        words = self._words[self._next :]
        digests = -(-(k - len(words)) // _WORDS_PER_DIGEST)
        if digests > 0:
            drawn = b"".join(self._digest() for _ in range(digests))
            words += struct.unpack(f">{_WORDS_PER_DIGEST * digests}Q", drawn)
        self._words, self._next = words, 0
        bounds = range(n, n - k, -1)
        # A word is rejected if it is not below the largest multiple of its bound, which is above 2**64 - n.
        if max(words[:k]) > _SPACE - n:
            return [self.below(bound) for bound in bounds]
        self._next = k
        return list(map(operator.mod, words, bounds))

    def _digest(self) -> bytes:
        state = self._keyed.copy()
        state.update(self._digests.to_bytes(8, "big"))
        self._digests += 1
        return state.digest()


def new_seed() -> str:
    """Return a new seed from the system's entropy source, as 32 hexadecimal digits."""
    return os.urandom(SEED_DIGITS // 2).hex()


def seed_from_user(number: int) -> str:
    """Return the seed of a number chosen by the user (``--seed N``): the number as 32 hexadecimal digits.

    Raises ValueError outside 0 .. 2**128 - 1.
    """
    if not 0 <= number < 1 << (4 * SEED_DIGITS):
        raise ValueError(f"seed {number} is not in 0 .. 2**128 - 1")
    return f"{number:0{SEED_DIGITS}x}"


@lru_cache(maxsize=4096)  # a coordinator draws for many hosts in turn
def seed_bytes(seed: str) -> bytes:
    """Convert 32 hexadecimal digits to 16 bytes; ValueError for anything else."""
    if len(seed) != SEED_DIGITS or any(digit not in "0123456789abcdefABCDEF" for digit in seed):
        raise ValueError(f'seed "{seed}" is not {SEED_DIGITS} hexadecimal digits')
    return bytes.fromhex(seed)


def _encoded(part: int | str) -> bytes:
    if isinstance(part, str):
        text = part.encode()
        return b"t" + len(text).to_bytes(4, "big") + text
    return b"i" + part.to_bytes(8, "big", signed=True)
