"""The JSON report: it matches its schema, and can always be written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from report_fixtures import CONDITIONS, SEED, all_equivalent, document, effect, study

from iotrial.report.document import Document
from iotrial.report.jsonreport import report_json
from iotrial.report.notation import utc
from iotrial.stats.model import Control, Effect, Verdict, VoidCount
from iotrial.store.model import TrialState
from iotrial.study.model import Claim, Scale

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "report.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
CLAIMS = (
    Claim("a blog", "12 % faster", "mode", "0444", "0777", 0.89, condition={"size": "4 KiB"}),
    Claim("a blog", "in words", "mode", "0444", "0555"),
)


def unbounded() -> list[Effect]:
    nothing = effect(
        Verdict.INCONCLUSIVE, None, None, None, condition=CONDITIONS[0], reason="no_blocks", blocks=0
    )
    return [nothing, effect(Verdict.INCONCLUSIVE, float("nan"), None, float("inf"), condition=CONDITIONS[1])]


def every_kind() -> dict[str, Document]:
    difference = effect(
        Verdict.HIGHER, 12.0, 10.0, 14.0, condition=CONDITIONS[0], scale=Scale.DIFFERENCE, unit="1"
    )
    failed = Control("negative", {"cache": "cold"}, "wall", 1.0, 1.05, 1.02, 1.08, False, True, 60)
    return {
        "equivalent": document(all_equivalent(), of=study(claims=CLAIMS)),
        "difference": document([difference]),
        "invalid": document(all_equivalent(), valid=False, control=[failed]),
        "unbounded": document(unbounded(), state=TrialState.INTERRUPTED, reason="SIGINT"),
        "void": document(
            all_equivalent(),
            void=[VoidCount("cache_not_cold", "0444", 2)],
            runs={"void": {(0, 1): "cache_not_cold"}},
        ),
        "failures": document(
            [effect(Verdict.INCONCLUSIVE, 1.0, 0.9, 1.1, failures=2)], runs={"failing": "0444"}
        ),
        "nothing": document([], control=[], runs={"blocks": 0}),
        "hostile": document([effect(Verdict.FASTER, 0.5, 0.4, 0.6, level='<script>"\u202e\x00')]),
    }


@pytest.mark.parametrize("kind", every_kind())
def test_every_report_meets_the_published_schema(kind: str) -> None:
    text = json.dumps(report_json(every_kind()[kind]), allow_nan=False)
    VALIDATOR.validate(json.loads(text))


def test_the_schema_itself_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_refuses_a_ratio_where_the_scale_is_difference() -> None:
    made = json.loads(json.dumps(report_json(every_kind()["difference"])))
    made["effects"][0]["ratio"] = made["effects"][0].pop("difference")
    assert not VALIDATOR.is_valid(made)


def test_the_trial_is_told_in_utc_with_seed_and_state() -> None:
    made = report_json(document(all_equivalent()))
    told = made["trial"]
    assert isinstance(told, dict)
    assert (told["number"], told["study"], told["state"], told["lab"]) == (
        12,
        "files/permissions",
        "done",
        "image",
    )
    assert (told["seed"], told["seed_chosen"]) == (SEED, False)
    assert told["started"] == "2026-03-01T09:00:00Z"


def test_an_effect_has_its_numbers_unrounded_and_null_where_unbounded() -> None:
    made = report_json(document([effect(Verdict.FASTER, 0.123456789, None, 0.2, condition=CONDITIONS[0])]))
    effects = made["effects"]
    assert isinstance(effects, list)
    assert effects[0] == {
        "kind": "main", "factor": "mode", "level": "0444", "reference": "0777",
        "condition": {"cache": "cold", "size": "4 KiB"}, "workload": "probe", "response": "wall", "unit": "s",
        "scale": "log", "better": "lower", "primary": True, "ratio": 0.123456789, "low": None, "high": 0.2,
        "family_alpha": 0.0125, "p_anytime": 0.001, "verdict": "faster",
        "conclusion": "faster", "agree": None, "detectably": None, "bounds": None,
        "two_sided": None, "skewed": False, "plain_beyond": None, "reason": None,
        "detectable": None, "blocks": 120, "failures": 0, "aliases": [],
            "statistic": "typical", "slow_runs": None, "mean_ratio": None, "means": None,
        "level_safety": {
            "class": "harmless",
            "consequence": "no risk to data"},
        "reference_safety": {
            "class": "trade-off", "consequence": "every user of the machine may change the files",
        },
    }  # fmt: skip


def test_an_invalid_analysis_makes_the_state_invalid() -> None:
    report = report_json(every_kind()["invalid"])["trial"]
    assert isinstance(report, dict)
    assert report["state"] == "invalid"


def test_a_time_without_a_zone_is_utc() -> None:
    assert utc("2026-03-01T10:00:00") == "2026-03-01T10:00:00Z"
    assert utc("2026-03-01T10:00:00.5+02:00") == "2026-03-01T08:00:00.500000Z"


def test_evidence_holds_a_median_for_each_treatment_condition_and_metric() -> None:
    rows = report_json(document(all_equivalent()))["evidence"]
    assert isinstance(rows, list)
    cold = {"cache": "cold", "size": "4 KiB", "workload": "probe"}
    reads = [row for row in rows if row["metric"] == "device_read_bytes" and row["condition"] == cold]
    assert [(row["treatment"], row["value"], row["unit"]) for row in reads] == [
        ("0777", 40960.0, "bytes"),
        ("0444", 40960.0, "bytes"),
    ]
