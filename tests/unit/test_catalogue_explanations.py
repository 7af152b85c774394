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
    (slower,) = (row for row in made.primary if row.effect.level == "0" and row.condition.workload == "sequential")
    size = filled("{ratio | 0 | sequential}", made)
    assert size == "21 times as long [19, 23]"
    assert size in slower.sentence
    for ambiguous in ("{ratio | 0}", "{ratio | 0 | no such work}"):
        with pytest.raises(ValueError, match="effects are"):
            filled(ambiguous, made)
