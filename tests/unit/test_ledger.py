"""The ledger of questions next to a store, and the evidence on each question."""

from __future__ import annotations

import io
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from accounts import account
from click.testing import CliRunner
from compared_trials import measured_trial
from factorials import factor, response
from factorials import study as factorial
from store_examples import header

from iotrial.cli.verbs import account as account_verb
from iotrial.cli.verbs import trials as trials_verb
from iotrial.design.plan import Plan
from iotrial.errors import StoreError
from iotrial.report.opening import summary_of
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.stats.questions import answered, questions
from iotrial.stats.spec import Spec
from iotrial.store import Store
from iotrial.store.ledger import asked, enter, ledger_path
from iotrial.store.packed import open_packed, read_packed
from iotrial.study.model import Better, Design, DesignKind, Role
from iotrial.tune.account import Standing, account_of
from values import replace

FAST, SAME, OTHER = "fa57" * 8, "5a3e" * 8, "07e4" * 8


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "trials.db")


# -- what is asked


def test_trials_of_earlier_versions_are_entered_in_the_order_of_their_numbers(store: Store) -> None:
    for name in (SAME, FAST):
        store.create_trial(header(name))
    assert not ledger_path(store.path).exists()
    assert [one.trial for one in asked(store)] == [SAME, FAST]
    assert not ledger_path(store.path).exists(), "reading changes nothing"
    enter(store)
    store.create_trial(header(OTHER))
    enter(store)
    enter(store)
    lines = ledger_path(store.path).read_text().splitlines()
    assert [json.loads(line)["trial"] for line in lines] == [SAME, FAST, OTHER]
    assert [one.levels for one in asked(store)] == [(("f", "b"),)] * 3


def test_a_store_that_is_deleted_takes_no_question_away(store: Store, tmp_path: Path) -> None:
    measured_trial(store, FAST, ratio=0.8)
    enter(store)
    before = account_of(store, ())
    store.close()
    for path in tmp_path.glob("trials.db*"):
        path.unlink()
    with Store.open(tmp_path / "trials.db") as fresh:
        measured_trial(fresh, SAME, ratio=1.0)
        enter(fresh)
        after = account_of(fresh, ())
    assert [one.trial for one in after.lines] == [FAST, SAME]
    assert after.lines[0].standing is Standing.GONE
    assert after.lines[0].e_value == 0.0
    assert after.lines[1].needed > before.lines[0].needed


def test_an_imported_trial_asks_nothing_here(store: Store, tmp_path: Path) -> None:
    with Store.open(tmp_path / "elsewhere.db") as elsewhere:
        measured_trial(elsewhere, FAST, ratio=0.8)
        packed = io.BytesIO()
        elsewhere.pack(FAST, packed)
    path = tmp_path / "fast.iotrial"
    path.write_bytes(packed.getvalue())
    with open_packed(path) as file:
        store.unpack(read_packed(file, "fast"), source="fast")
    store.create_trial(header(SAME))
    enter(store)
    assert [one.trial for one in asked(store)] == [SAME]


@pytest.mark.parametrize("damage", [b'{"trial": "5a3e', b"\xff\xfe\n", b"[1, 2]\n"])
def test_a_line_that_cannot_be_read_counts_as_one_question(store: Store, damage: bytes) -> None:
    store.create_trial(header(SAME))
    enter(store)
    path = ledger_path(store.path)
    path.write_bytes(path.read_bytes() + damage)
    store.create_trial(header(FAST))
    enter(store)
    assert [one.trial for one in asked(store)] == [SAME, "", FAST]
    assert len(account_of(store, ()).lines) == 3


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
def test_a_ledger_that_is_no_file_is_an_error_and_stays(store: Store, tmp_path: Path, kind: str) -> None:
    path = ledger_path(store.path)
    target = tmp_path / "target"
    target.write_bytes(b"")
    {"folder": path.mkdir, "link": lambda: path.symlink_to(target), "fifo": lambda: os.mkfifo(path)}[kind]()
    before = path.lstat()
    store.create_trial(header(SAME))
    for use in (asked, enter):
        with pytest.raises(StoreError, match="ledger of questions"):
            use(store)
    assert os.path.samestat(path.lstat(), before)
    assert target.read_bytes() == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_root_writes_no_ledger_beside_the_store_of_another_user(store: Store) -> None:
    store.create_trial(header(SAME))
    os.chown(store.path, 1234, 1234)
    with pytest.raises(StoreError, match="another user"):
        enter(store)
    assert not ledger_path(store.path).exists()
    assert [one.trial for one in account_of(store, ()).lines] == [SAME]


def test_a_pilot_in_memory_asks_nothing() -> None:
    with Store.in_memory() as store:
        store.create_trial(header(SAME))
        enter(store)
        assert not ledger_path(store.path).exists()


# -- which questions a study has


def _spec(kind: DesignKind | None = None, **changes: object) -> Spec:
    made = factorial(
        factor("mode", "444 555 777"),
        factor("cache", "cold warm", Role.CONDITION),
        responses=(response("wall"),),
    )
    if kind is not None:
        made = replace(made, design=Design(kind))
    return Spec.from_plan(Plan(replace(made, **changes), "00" * 16))


def _asked(spec: Spec) -> list[tuple[str, str, str]]:
    return [(one.factor, one.level, one.reference) for one in questions(spec)]


def test_each_level_but_the_reference_is_one_question_whatever_the_conditions() -> None:
    assert _asked(_spec()) == [("mode", "555", "444"), ("mode", "777", "444")]


def test_a_race_asks_nothing_and_a_confirmation_asks_about_every_level_against_today() -> None:
    assert _asked(_spec(DesignKind.RACE)) == []
    assert _asked(_spec(DesignKind.CONFIRM)) == [("mode", "555", "444"), ("mode", "777", "444")]


def test_a_response_without_a_better_side_asks_nothing() -> None:
    assert _asked(_spec(responses=(replace(response("wall"), better=Better.NONE),))) == []


def _blocks(
    spec: Spec, effects: dict[str, float], count: int, *, fails: str | None = None
) -> list[ObservedBlock]:
    rng = np.random.default_rng()
    made = []
    for index in range(count):
        for condition in spec.conditions:
            arms = list({arm for term in spec.terms for arm in term.weights})
            rng.shuffle(arms)
            runs = tuple(
                Observation(
                    arm=arm,
                    kind="treatment",  # type: ignore[arg-type]
                    treatment={"mode": arm},
                    slot=slot,
                    started_s=float(index),
                    responses={"wall": math.exp(effects[arm] + rng.normal(0.0, 0.02))},
                    failure="it failed" if fails == arm and index == 3 else None,
                )
                for slot, arm in enumerate(arms)
            )
            made.append(ObservedBlock(condition.key, index, runs))
    return made


@pytest.mark.parametrize("better", [Better.LOWER, Better.HIGHER])
def test_evidence_is_for_the_better_side_only(better: Better) -> None:
    sign = 1.0 if better is Better.LOWER else -1.0
    spec = _spec(responses=(replace(response("wall"), better=better),))
    found = answered(spec, _blocks(spec, {"444": 0.0, "555": -0.2 * sign, "777": 0.2 * sign}, 30))
    assert found[0].e_value > 1e4
    assert found[1].e_value < 1.0
    assert {one.blocks for one in found} == {30}


def test_a_level_with_a_failed_run_has_no_evidence() -> None:
    spec = _spec()
    effects = {"444": 0.0, "555": -0.2, "777": -0.2}
    first, second = answered(spec, _blocks(spec, effects, 30, fails="777"))
    assert first.e_value > 1e4
    assert second.e_value == 0.0


def test_a_trial_without_blocks_has_evidence_of_one() -> None:
    assert [one.e_value for one in answered(_spec(), [])] == [1.0, 1.0]


def test_the_summary_of_a_stored_trial_has_the_evidence(store: Store) -> None:
    measured_trial(store, FAST, ratio=0.8)
    measured_trial(store, SAME, ratio=1.0)
    (fast,), (same,) = (summary_of(store, name).answered for name in (FAST, SAME))
    assert (fast.question.factor, fast.question.level, fast.question.reference) == ("f", "b", "a")
    assert fast.e_value > 1e6
    assert same.e_value < 20.0
    assert fast.blocks == 60


# -- the account


def test_the_account_counts_what_is_kept_not_what_could_be() -> None:
    trials = [(f"t{number}", {"b": 1e9}) for number in range(20)]
    alone = account(*trials)
    assert {one.standing for one in alone.lines} == {Standing.ENOUGH}
    keeping = account(*trials, kept=[(name, "f", "b") for name, _ in trials])
    assert keeping.next_needed < alone.next_needed / 10
    assert {one.standing for one in keeping.lines} == {Standing.KEPT}


def test_what_is_kept_without_evidence_is_said_to_be_beyond_the_account() -> None:
    found = account(("t1", {"b": 3.0}), ("t2", {"b": 1e6}), kept=[("t1", "f", "b"), ("t2", "f", "b")])
    assert [one.standing for one in found.lines] == [Standing.BEYOND, Standing.KEPT]


def test_levels_of_one_trial_are_admitted_together_or_the_weakest_are_left_out() -> None:
    found = account(("t1", {"b": 200.0, "c": 120.0, "d": 2.0}))
    assert found.beyond("t1", {("f", "b"), ("f", "c"), ("f", "d")}) == {("f", "d")}
    assert found.beyond("other", {("f", "b")}) == {("f", "b")}


def test_the_verbs_show_standings(tmp_path: Path) -> None:
    path = tmp_path / "trials.db"
    with Store.open(path) as store:
        measured_trial(store, FAST, ratio=0.8)
        measured_trial(store, SAME, ratio=1.0)
        for name in (FAST, SAME):
            summary_of(store, name)
    env = {"IOTRIAL_STORE": str(path), "IOTRIAL_ROOT": str(tmp_path / "machine")}
    told = CliRunner(env=env).invoke(account_verb.command, standalone_mode=False)
    assert told.exception is None, told.exception
    assert "2 questions asked; 1 may be kept" in told.output
    assert "trial 1: f b vs a" in told.output
    listed = CliRunner(env=env).invoke(trials_verb.command, ["--json"], standalone_mode=False)
    rows = json.loads(listed.output)["trials"]
    assert [row["account"] for row in rows] == ["may be kept", "e-value too small"]
    listed = CliRunner(env=env).invoke(trials_verb.command, standalone_mode=False)
    assert listed.output.count("(may be kept)") == 1
