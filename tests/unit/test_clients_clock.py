"""Clocks of clients: what is said of one lies within its bound, whatever the way there and back takes."""

from __future__ import annotations

import random

import pytest

from iotrial.conduct.crowd.clock import Common, Reading, read_clock
from iotrial.conduct.crowd.one import APART, CLOCK_SET, void_rule
from iotrial.workloads.served.figures import Timed

MS = 1_000_000


class Link:
    """Another machine's clock behind a way whose delays are known: ``offset_ns`` ahead of ours at 0, fast by ``drift``."""

    def __init__(
        self, offset_ns: int, *, drift: float = 0.0, there: range, back: range, seed: int = 1
    ) -> None:
        self.now_ns = 0
        self._offset_ns = offset_ns
        self._drift = drift
        self._delays = (there, back)
        self._draw = random.Random(seed)

    def truth(self, at_ns: int) -> float:
        """By how much that clock is ahead of ours at this moment of ours."""
        return self._offset_ns + self._drift * at_ns

    def now(self) -> int:
        return self.now_ns

    def ask(self) -> int:
        there, back = self._delays
        self.now_ns += self._draw.choice(there)
        told = self.now_ns + round(self.truth(self.now_ns))
        self.now_ns += self._draw.choice(back)
        return told

    def read(self) -> Reading:
        return read_clock(self.ask, now=self.now)


@pytest.mark.parametrize(
    ("there", "back"),
    [
        (range(MS, MS + 1), range(MS, MS + 1)),
        (range(9 * MS, 9 * MS + 1), range(1, 2)),  # all of the way is there
        (range(1, 2), range(9 * MS, 9 * MS + 1)),  # all of it is back
        (range(20_000, 5 * MS, 7), range(20_000, 40 * MS, 7)),  # jitter, slower back
    ],
)
@pytest.mark.parametrize("offset_ns", [0, 3_600_000_000_000, -86_400_000_000_000])
def test_the_true_offset_lies_within_the_bound_however_lopsided_the_way_is(
    there: range, back: range, offset_ns: int
) -> None:
    for seed in range(50):
        link = Link(offset_ns, there=there, back=back, seed=seed)
        reading = link.read()
        assert abs(reading.offset_ns - link.truth(reading.at_ns)) <= reading.bound_ns


def test_a_way_that_is_all_in_one_direction_puts_the_truth_on_the_bound_itself() -> None:
    reading = Link(5 * MS, there=range(8 * MS, 8 * MS + 1), back=range(1)).read()
    assert reading.bound_ns == 4 * MS
    assert reading.offset_ns - 5 * MS == 4 * MS


def test_the_exchange_with_the_shortest_way_is_taken() -> None:
    told = iter([100, 200, 300])
    # ours: sent 0 back 50, sent 60 back 64, sent 70 back 100
    ours = iter([0, 50, 60, 64, 70, 100])
    reading = read_clock(lambda: next(told), exchanges=3, now=lambda: next(ours))
    assert reading == Reading(at_ns=62, offset_ns=138, bound_ns=2, round_trip_ns=4)


@pytest.mark.parametrize("drift", [0.0, 200e-6, -200e-6])
def test_moments_of_a_drifting_clock_are_put_on_ours_to_within_the_bound(drift: float) -> None:
    for seed in range(50):
        link = Link(
            7_000 * MS, drift=drift, there=range(1000, 900_000, 7), back=range(1000, 300_000, 7), seed=seed
        )
        before = link.read()
        moments = []
        for _ in range(5):
            link.now_ns += 2_000 * MS
            moments.append((link.now_ns, link.now_ns + round(link.truth(link.now_ns))))
        common = Common(before, link.read())
        assert abs(common.drift - drift) <= common.drift_bound + 1e-9
        assert not common.stepped
        for ours, theirs in moments:
            # 2 ns: numbers are whole, and what the clock drifts within one exchange
            assert abs(common.ours(theirs) - ours) <= common.bound_ns + 2 + abs(drift) * 2 * MS


def test_a_clock_that_was_set_between_two_readings_is_told_from_one_that_drifts() -> None:
    before, after = Reading(0, 0, 1000, 2000), Reading(10_000 * MS, 50 * MS, 1000, 2000)
    assert Common(before, after).stepped  # 50 ms in 10 s
    assert not Common(before, Reading(10_000 * MS, 5 * MS, 1000, 2000)).stepped


def client(name: str, start_ns: int, end_ns: int) -> Timed:
    return Timed(name, start_ns, end_ns)


def clock(bound_ns: int, *, gained_ns: int = 0) -> Common:
    return Common(
        Reading(0, 0, bound_ns, 2 * bound_ns), Reading(1_000 * MS, gained_ns, bound_ns, 2 * bound_ns)
    )


def test_clients_that_begin_further_apart_than_declared_make_the_run_void() -> None:
    timed = [client("a", 0, 100 * MS), client("b", 9 * MS, 100 * MS)]
    exact = [clock(0), clock(0)]
    assert void_rule(timed, exact, 0.1) is None
    assert void_rule(timed, exact, 0.05) == APART


def test_what_the_clocks_may_be_off_counts_against_the_run() -> None:
    timed = [client("a", 0, 100 * MS), client("b", 9 * MS, 100 * MS)]
    assert void_rule(timed, [clock(0), clock(MS // 4)], 0.1) is None
    assert void_rule(timed, [clock(0), clock(MS)], 0.1) == APART


def test_one_client_is_never_apart_and_a_clock_that_was_set_voids_any_run() -> None:
    assert void_rule([client("a", 5, 6)], [clock(100 * MS)], 0.01) is None
    assert void_rule([client("a", 0, MS)], [clock(1000, gained_ns=100 * MS)], 1.0) == CLOCK_SET
