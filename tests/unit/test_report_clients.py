"""The sentence of a report on how far apart clients began, from runs that tell, and from some that tell nonsense."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from iotrial.report.sentences import client_sentences


def data(*checks: object) -> Any:
    return SimpleNamespace(runs=[SimpleNamespace(checks={"clients": one}) for one in checks])


def told(*began_s: float, bound_s: float = 1e-5, drift: float = 3.0) -> dict[str, object]:
    return {
        "began_s": list(began_s),
        "clock_bound_s": [bound_s] * len(began_s),
        "clock_drift_ppm": [drift] * len(began_s),
        "clock_drift_bound_ppm": [1.0] * len(began_s),
    }


def test_it_tells_median_and_largest_spread_the_worst_clock_and_the_last_drift() -> None:
    runs = data(told(0.0, 0.001), told(0.0, 0.002, bound_s=2e-5, drift=900.0), told(0.0, 0.001, 0.009))
    [text] = client_sentences(runs)
    assert "3 clients at most" in text
    assert "within 2 ms" in text
    assert "median of 3 runs; at most 9 ms" in text
    assert "known to 20 µs and drifted by 3 ± 1 ppm" in text


def test_runs_of_one_client_and_nonsense_of_a_foreign_trial_say_nothing() -> None:
    assert list(client_sentences(data(told(0.0)))) == []
    wrong: list[object] = [
        "x",
        None,
        {"began_s": ["a"], "clock_bound_s": [1]},
        {"began_s": [float("nan"), 0.0]},
    ]
    wrong += [{"began_s": [0.0, 1e300], "clock_bound_s": [0.0]}, {"began_s": {}, "clock_bound_s": []}]
    assert list(client_sentences(data(*wrong))) == []
