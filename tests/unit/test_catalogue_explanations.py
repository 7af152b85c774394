"""An explanation in the catalogue has the numbers of its trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from generators.finding_page import filled
from iotrial.report.opening import packed_document


@pytest.mark.slow
def test_an_explanation_has_the_numbers_of_its_trial_and_no_others() -> None:
    made = packed_document(Path(__file__).parents[2] / "docs" / "catalogue" / "nas" / "limits.iotrial")
    assert filled("{rate | 1 Gbit/s} and {nas_cpu | 1 Gbit/s | 2 | read}.", made) == (
        "38.9 to 53.6 MiB/s and 90 ms."
    )
    for missing in ("{no_such_metric}", "{rate | 10 Gbit/s}"):
        with pytest.raises(ValueError, match="no run has"):
            filled(missing, made)


@pytest.mark.slow
def test_an_explanation_has_the_size_of_one_effect() -> None:
    made = packed_document(Path(__file__).parents[2] / "docs" / "catalogue" / "block" / "readahead.iotrial")
    (slower,) = (
        row for row in made.primary if row.effect.level == "0" and row.condition.workload == "sequential"
    )
    size = filled("{ratio | 0 | sequential}", made)
    assert size == "21 times as long [19, 23]"
    assert size in slower.sentence
    for ambiguous in ("{ratio | 0}", "{ratio | 0 | no such work}"):
        with pytest.raises(ValueError, match="effects are"):
            filled(ambiguous, made)


@pytest.mark.slow
def test_a_part_names_only_a_treatment_or_only_a_condition() -> None:
    made = packed_document(Path(__file__).parents[2] / "docs" / "catalogue" / "nas" / "clients.iotrial")
    (row,) = (
        row
        for row in made.evidence
        if row.metric == "wall" and row.treatment == "1" and row.condition.labels["clients"] == "2"
    )
    number = f"{row.value * 1e3:.1f} ms"
    assert filled("{wall | treatment=1 | clients=2}", made) == number
    assert filled("{wall | 1 | 2}", made) != number  # also two workers with one client
