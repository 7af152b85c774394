"""What comes of clients at once: rates, fairness and the server's time, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from iotrial.conduct.crowd.answer import told
from iotrial.conduct.crowd.machine import Spent
from iotrial.errors import ProbeError
from iotrial.workloads.served.figures import Timed, fairness, numbers, spread_ns, together_ns, whole_ns

S = 1_000_000_000


def test_jains_index_is_one_for_equal_shares_and_one_over_n_for_a_single_one() -> None:
    assert fairness([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert fairness([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert fairness([1.0, 3.0]) == pytest.approx(16 / 20)  # (1 + 3)^2 / (2 (1 + 9))
    with pytest.raises(ValueError, match="above 0"):
        fairness([0.0, 0.0])


def test_three_clients_with_known_times_give_the_numbers_worked_out_by_hand() -> None:
    # a: 0 to 2 s, b: 1 to 3 s, c: 1 to 5 s, 100 bytes each
    timed = [Timed("a", 0, 2 * S), Timed("b", S, 3 * S), Timed("c", S, 5 * S)]
    assert (whole_ns(timed), together_ns(timed), spread_ns(timed)) == (5 * S, S, S)
    found = numbers(timed, 100)
    assert found["rate"] == pytest.approx(300 / 5)
    assert found["rate_together"] == pytest.approx(50 + 50 + 25)
    assert (found["client_slowest"], found["client_median"], found["client_fastest"]) == (4.0, 2.0, 2.0)
    assert found["slowest_to_fastest"] == pytest.approx(2.0)
    assert found["fairness"] == pytest.approx(125**2 / (3 * (50**2 + 50**2 + 25**2)))


def test_without_a_volume_rates_are_works_a_second_and_clients_that_never_met_have_none_together() -> None:
    found = numbers([Timed("a", 0, S), Timed("b", 2 * S, 4 * S)], 0)
    assert found["rate"] == pytest.approx(2 / 4)
    assert "rate_together" not in found
    assert found["together_time"] == 0.0


def test_the_servers_time_is_the_difference_of_two_readings_of_proc_stat() -> None:
    before = Spent.of("cpu  100 0 50 1000 10 1 4 0 0 0\ncpu0 1 2\n")
    after = Spent.of("cpu  130 0 70 1140 5 2 13 0 0 0\n")
    found = after.since(before)
    # 30 user + 20 system + 1 irq + 9 softirq of 200 ticks; iowait counted back is not less than nothing
    assert found["server_cpu"] == pytest.approx(0.60)
    assert found["server_softirq"] == pytest.approx(0.10)
    assert found["server_busy"] == pytest.approx(30.0)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8 9", "cpu a b c d e f g h i"])
def test_what_is_no_proc_stat_is_refused(text: str) -> None:
    with pytest.raises(ProbeError, match="proc/stat"):
        Spent.of(text)


SOUND = {
    "started_ns": 5,
    "ended_ns": 9,
    "user_ns": 1,
    "sys_ns": 1,
    "cpu_ns": 2,
    "usage": dict.fromkeys(
        (
            "faults_minor",
            "faults_major",
            "switches_voluntary",
            "switches_involuntary",
            "blocks_in",
            "blocks_out",
        ),
        0,
    ),
    "steps": [{"name": "command", "wall_ns": 4}],
    "failures": [],
}


def test_a_sound_answer_is_taken_as_it_is() -> None:
    found = told(SOUND, "client c1")
    assert (found.started_ns, found.ended_ns, dict(found.steps_ns)) == (5, 9, {"command": 4})


@pytest.mark.parametrize(
    "wrong",
    [
        {"started_ns": -1},
        {"started_ns": "5"},
        {"started_ns": True},
        {"ended_ns": 1 << 70},
        {"ended_ns": 4},
        {"usage": None},
        {"steps": [3]},
        {"steps": [{"name": "command", "wall_ns": None}]},
        {"failures": "none"},
    ],
)
def test_an_answer_that_can_be_none_is_an_error_that_names_the_client(wrong: dict[str, object]) -> None:
    with pytest.raises(ProbeError, match="client c1"):
        told({**SOUND, **wrong}, "client c1")


def test_what_a_failed_client_said_cannot_steer_a_terminal_by_its_name() -> None:
    failure = {"step": "command", "argv0": "\x1b[2Jcurl", "exit": 7, "signal": None, "stderr": "x" * 9999}
    [found] = told({**SOUND, "failures": [failure]}, "client c1").failures
    assert found["argv0"] == r"client c1: \x1b[2Jcurl"
    assert found["exit"] == 7
    assert len(found["stderr"]) == 400
