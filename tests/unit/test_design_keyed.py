"""The keyed generator, against an implementation written from its documentation, and against pinned values."""

from __future__ import annotations

import hashlib
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iotrial.design.keyed import Stream, new_seed, seed_from_user

SEED = "000102030405060708090a0b0c0d0e0f"
COORDINATES = st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=5)), max_size=3)


class Documented:
    """Slow implementation of the generator that follows its documentation literally."""

    def __init__(self, seed: str, domain: str, *coordinates: int | str) -> None:
        self.key = bytes.fromhex(seed)
        for part in (domain, *coordinates):
            if isinstance(part, str):
                text = part.encode("utf-8")
                self.key += b"t" + bytes([len(text) >> s & 255 for s in (24, 16, 8, 0)]) + text
            else:
                self.key += b"i" + bytes([part >> s & 255 for s in range(56, -1, -8)])
        self.taken = 0

    def word(self) -> int:
        digest = hashlib.sha256(self.key + (self.taken // 4).to_bytes(8, "big")).digest()
        start = 8 * (self.taken % 4)
        self.taken += 1
        return int.from_bytes(digest[start : start + 8], "big")

    def below(self, bound: int) -> int:
        largest_multiple = 2**64 // bound * bound
        while True:
            word = self.word()
            if word < largest_multiple:
                return word % bound

    def sample(self, n: int, k: int) -> tuple[int, ...]:
        items = list(range(n))
        for i in range(k):
            j = i + self.below(n - i)
            items[i], items[j] = items[j], items[i]
        return tuple(items[:k])


def test_the_first_words_are_pinned() -> None:
    stream = Stream(SEED, "order", "cache=cold", 7)
    # seed, then t 5 "order", t 10 "cache=cold", i 7, and the counter 0
    message = bytes.fromhex(
        "000102030405060708090a0b0c0d0e0f"
        "74"
        "00000005"
        "6f72646572"
        "74"
        "0000000a"
        "63616368653d636f6c64"
        "69"
        "0000000000000007"
        "0000000000000000"
    )
    digest = hashlib.sha256(message).hexdigest()
    assert [f"{stream.word():016x}" for _ in range(4)] == [digest[i : i + 16] for i in range(0, 64, 16)]
    assert digest == "d1cfbdea27699681dadb501025574d264bfe6dbca2caf5876c3e088b9a813cce"


def test_an_order_and_a_sample_are_pinned() -> None:
    assert Stream(SEED, "order", "cache=cold", 7).permutation(8) == (1, 4, 7, 0, 2, 5, 6, 3)
    assert Stream(SEED, "assignment", "cache=cold", 7).sample(1000, 6) == (746, 543, 259, 386, 821, 32)


@settings(deadline=None)  # the first long one imports numpy
@given(COORDINATES, st.integers(0, 40), st.data())
def test_samples_agree_with_the_documented_algorithm(
    coordinates: list[int | str], n: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(0, n))
    assert Stream(SEED, "order", *coordinates).sample(n, k) == Documented(SEED, "order", *coordinates).sample(
        n, k
    )


@pytest.mark.parametrize("k", [31, 32, 33, 34, 35, 36, 200])
def test_a_long_sample_takes_the_words_of_the_documented_algorithm_and_no_more(k: int) -> None:
    ours, documented = Stream(SEED, "order"), Documented(SEED, "order")
    assert ours.word() == documented.word()
    assert ours.sample(k + 5, k) == documented.sample(k + 5, k)
    assert ours.word() == documented.word()
    assert ours.sample(k, k) == documented.sample(k, k)
    assert ours.below(10) == documented.below(10)


@given(st.lists(st.integers(1, 2**64), min_size=1, max_size=12))
def test_bounded_integers_agree_with_the_documented_algorithm(bounds: list[int]) -> None:
    ours, documented = Stream(SEED, "order"), Documented(SEED, "order")
    assert [ours.below(m) for m in bounds] == [documented.below(m) for m in bounds]


def test_words_that_would_favour_small_numbers_are_rejected() -> None:
    # At this bound nearly every second word is beyond the last whole multiple.
    bound = 2**63 + 1
    ours, documented = Stream(SEED, "order"), Documented(SEED, "order")
    assert [ours.below(bound) for _ in range(50)] == [documented.below(bound) for _ in range(50)]
    assert documented.taken > 70


def test_draws_of_different_kinds_share_one_sequence_of_words() -> None:
    ours, documented = Stream(SEED, "order"), Documented(SEED, "order")
    assert ours.below(10) == documented.below(10)
    assert ours.sample(9, 5) == documented.sample(9, 5)
    assert ours.word() == documented.word()
    assert ours.permutation(3) == documented.sample(3, 3)


@given(COORDINATES, COORDINATES)
def test_different_coordinates_have_different_keys(a: list[int | str], b: list[int | str]) -> None:
    assert (Stream(SEED, "order", *a).word() == Stream(SEED, "order", *b).word()) is (a == b)


def test_all_permutations_of_four_are_equally_frequent() -> None:
    drawn = 24_000
    counts = Counter(Stream(SEED, "order", "x", i).permutation(4) for i in range(drawn))
    assert len(counts) == math.factorial(4)
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi_square < 49.7  # the 99.9 % point at 23 degrees of freedom


def test_a_large_sample_holds_no_number_twice() -> None:
    sample = Stream(SEED, "assignment").sample(12_000, 10_000)
    assert len(set(sample)) == 10_000
    assert min(sample) >= 0
    assert max(sample) < 12_000


def test_a_seed_of_a_user_is_the_number_itself() -> None:
    assert seed_from_user(255) == "000000000000000000000000000000ff"
    assert seed_from_user(2**128 - 1) == "f" * 32
    with pytest.raises(ValueError, match="not in 0"):
        seed_from_user(-1)
    with pytest.raises(ValueError, match="not in 0"):
        seed_from_user(2**128)


def test_fresh_seeds_differ_and_have_the_form_of_a_seed() -> None:
    seeds = {new_seed() for _ in range(50)}
    assert len(seeds) == 50
    for seed in seeds:
        Stream(seed, "order")


@pytest.mark.parametrize("seed", ["", "0" * 31, "0" * 33, "g" * 32, " " + "0" * 31])
def test_a_seed_of_another_form_is_refused(seed: str) -> None:
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        Stream(seed, "order")


def test_more_than_there_is_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="without repetition"):
        Stream(SEED, "order").sample(3, 4)
    with pytest.raises(ValueError, match="not in 1"):
        Stream(SEED, "order").below(0)
