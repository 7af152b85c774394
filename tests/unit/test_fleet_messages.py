"""Orders, facts and batches as text: data from other machines is parsed as hostile input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fleet_hosts import ORDER, HostStore

from iotrial.errors import IotrialError, StoreError
from iotrial.fleet.agent import Agent, after_request, answered, refused
from iotrial.fleet.batch import Batch, HostFacts, Position, Stage
from iotrial.fleet.order import MAX_STUDY, Distrusted, Order, Record, seed_of
from iotrial.fleet.watchdog import error_in
from values import replace

ASKED = msgspec.structs.replace(
    ORDER,
    host="alpha",
    options={"set": ("mode=0444,0777",), "time": ("5m",), "on": ("--trust",)},
    flags=("no-stop",),
)
FACTS = HostFacts("alpha", "1.0", "6.1", 2, 1 << 30, root=True)


def test_the_seed_of_a_host_is_what_sha256sum_says() -> None:
    # printf 'iotrial fleet\n%032d\nalpha\n' 0 | sha256sum
    assert seed_of("0" * 32, "alpha") == "098263a0258f145da35608786d70f14e"
    assert seed_of("0" * 32, "beta") != seed_of("0" * 32, "alpha") != seed_of("1" * 32, "alpha")


def test_an_order_comes_over_the_wire_as_it_was_and_the_same_one_is_the_same_text() -> None:
    assert Order.from_json(ASKED.to_json()) == ASKED
    assert Order.from_json(ASKED.to_json()).to_json() == ASKED.to_json()


def test_no_value_of_an_order_can_be_taken_for_another_option() -> None:
    words = ASKED.words(Path("/x/study.toml"), Path("/x/report.html"))
    assert words == (
        "run", "/x/study.toml", "--set=mode=0444,0777", "--time=5m", "--on=--trust", "--no-stop",
        f"--seed={ORDER.seed}", "--html=/x/report.html", "--json",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fleet", "../../etc"),
        ("fleet", "f" * 31),
        ("host", "a/b"),
        ("host", ""),
        ("host", "-x"),
        ("host", "x" * 64),
        ("seed", "g" * 32),
        ("study", "/etc/passwd"),
        ("study", "files/permissions"),  # with a text as well
        ("text", ""),
        ("text", "x" * (MAX_STUDY + 1)),
        ("options", {"html": ["/etc/passwd"]}),
        ("options", {"device": ["/dev/sda"]}),
        ("options", {"lab": ["device"]}),
        ("options", {"time": "5m"}),
        ("options", {"time": [5]}),
        ("flags", ["erase"]),
        ("flags", "trust"),
        ("grace_s", 0),
        ("grace_s", "5"),
        ("grace_s", True),
        ("more", 1),
    ],
)
def test_an_order_that_asks_for_what_none_may_is_refused(field: str, value: Any) -> None:
    with pytest.raises(Distrusted):
        Order.from_json(json.dumps({**json.loads(ASKED.to_json()), field: value}))


def test_facts_come_as_they_were_and_foreign_ones_are_refused() -> None:
    assert HostFacts.from_json(FACTS.to_json()) == FACTS
    good = json.loads(FACTS.to_json())
    for field, value in (
        ("name", "a b"),
        ("processors", 0),
        ("processors", 2.0),
        ("root", 1),
        ("kernel", "x" * 999),
    ):
        with pytest.raises(Distrusted):
            HostFacts.from_json(json.dumps({**good, field: value}))


@pytest.mark.parametrize(
    "text",
    [
        None,
        b"{}",
        "",
        "[]",
        "{",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        '{"a": 99999999999999999999}',
        '{"a": "\\ud800"}',
        "[" * 100_000,
        '{"a":' * 50 + "1" + "}" * 50,
        '{"a": "' + "x" * (33 << 20) + '"}',
    ],
    ids=lambda text: repr(text)[:20],
)
def test_text_that_is_no_message_is_refused(text: object) -> None:
    for reader in (Batch.from_json, Order.from_json, HostFacts.from_json):
        with pytest.raises(Distrusted):
            reader(text)


def test_a_batch_that_no_agent_sends_is_refused(tmp_path: Path) -> None:
    host = HostStore(tmp_path / "host.db", "alpha")
    host.measure(2)
    good = json.loads(host.batch().to_json())
    records = good["records"]
    run = next(index for index, (kind, _) in enumerate(records) if kind == "run")

    def with_record(value: object) -> dict[str, Any]:
        return {**good, "records": [*records[:run], value, *records[run + 1 :]]}

    kind, fields = records[run]
    wrong: list[dict[str, Any]] = [
        {**good, "stage": "gone"},
        {**good, "since": [0, 0]},
        {**good, "since": [0, -1, 0]},
        {**good, "since": [True, 0, 0]},
        {**good, "left": "none"},
        {**good, "records": [0] * 20_001},
        {**good, "records": [records[0], *records]},
        with_record("run"),
        with_record(["run"]),
        with_record(["imported", fields]),
        with_record([kind, {**fields, "responses": {"wall": "1"}}]),
        with_record([kind, {**fields, "responses": {"wall": -1.0}}]),
        with_record([kind, {**fields, "arm": "x" * 100_000}]),
        with_record([kind, {**fields, "more": 1}]),
        with_record([kind, {name: value for name, value in fields.items() if name != "slot"}]),
    ]
    for value in wrong:
        with pytest.raises(Distrusted):
            Batch.from_json(json.dumps(value))
    assert Batch.from_json(json.dumps(good)).ends


def test_no_key_that_is_unknown_or_left_out_is_believed(tmp_path: Path) -> None:
    host = HostStore(tmp_path / "host.db", "alpha")
    host.measure(1)
    host.note("machine", "it said ß")
    text = host.batch().to_json()
    for changed in (
        text.replace('"slot":', '"other":1,"slot":', 1),
        text.replace('"gap":false', '"gap":false,"x":1', 1),
        text.replace('"left":0', '"left":0,"x":1', 1),
        text.replace('"failure":null,', "", 1),
        text.replace('"void":null,', "", 1),
        text.replace('"left":0', '"left":NaN', 1),
        text.replace("ß", "\\ud800", 1),
        text.replace("ß", "\ud800", 1),
        text + "{}",
        text[:-1],
    ):
        assert changed != text
        with pytest.raises(Distrusted):
            Batch.from_json(changed)


def test_a_number_that_is_not_finite_is_not_believed(tmp_path: Path) -> None:
    host = HostStore(tmp_path / "host.db", "alpha")
    host.measure(1)
    batch = host.batch()
    run = replace(batch.runs[0].run, responses={"wall": float("nan")})
    with pytest.raises(Distrusted):
        Batch.from_json(replace(batch, runs=(replace(batch.runs[0], run=run), *batch.runs[1:])).to_json())


def test_an_agent_answers_in_text_whatever_it_is_asked(state: Path) -> None:
    agent = Agent("alpha", state)
    assert HostFacts.from_json(answered(agent, "facts", "")).name == "alpha"
    nothing = Batch.from_json(answered(agent, "after", after_request(ORDER.fleet, Position())))
    assert (nothing.stage, nothing.header) == (Stage.NONE, None)
    for ask, text in (
        ("begin", "{}"),
        ("after", '{"fleet": "../..", "position": [0, 0, 0]}'),
        ("after", '{"fleet": "x", "position": []}'),
        ("system", json.dumps({"fleet": ORDER.fleet})),
    ):
        with pytest.raises(IotrialError, match="host alpha: "):
            refused("alpha", answered(agent, ask, text))
    assert not (state / "fleet").exists(), "nothing was made"


def test_answers_that_are_none_are_refused() -> None:
    for answer in (None, 5, {"error": 1}, '{"error": []}', "x" * (33 << 20)):
        with pytest.raises(Distrusted):
            refused("alpha", answer)


def test_why_a_program_ended_is_told_in_its_own_words() -> None:
    said = 'note\n{"error": {"code": "busy", "message": "another is measuring", "hint": "wait"}}\n'
    assert error_in(said) == "another is measuring (hint: wait)"
    assert error_in("Traceback\nMemoryError\n") == "Traceback\nMemoryError"


def test_a_fleet_that_an_earlier_build_has_written_down_is_read(tmp_path: Path) -> None:
    path = tmp_path / f"{ASKED.fleet}.json"
    reached = {"hosts": "a,root@b:2222", "ssh_config": "/x/config"}
    found = {"order": ASKED.to_json(), "name": "example", "seed_chosen": False, "reached": reached}
    path.write_text(json.dumps(found))
    record = Record.read(path)
    assert record == Record(ASKED, "example", seed_chosen=False, reached=reached)
    assert Record.read(record.write(tmp_path / "again")) == record
    path.write_text("{}")
    with pytest.raises(StoreError, match="cannot be read"):
        Record.read(path)


def test_the_damaged_store_of_one_fleet_stops_no_other_on_its_host(state: Path) -> None:
    damaged = state / "fleet" / ORDER.fleet
    damaged.mkdir(parents=True)
    (damaged / "keeper.json").write_text('{"pid": 1, "pid_started": "0/0"}')
    (damaged / "trials.db").write_text("no store")
    agent = Agent("alpha", state)
    assert agent.going() == ()
    assert agent.mend() == ""
