"""Malicious packed trials: each ends in an error with a reason, and nothing is stored."""

from __future__ import annotations

import copy
import gzip
import io
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from forged_trials import Lines, first, read, refused, signed, sound, sound_lines, study

from iotrial.errors import RequestError
from iotrial.store.packed import reading, stream


def test_the_forger_s_tool_makes_sound_files() -> None:
    assert len(read(signed(sound_lines())).data(1).runs) == 6


def _set(kind: str, key: str, value: object) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        first(lines, kind)[key] = value

    return change


def _older(change: Callable[[Lines], None]) -> Callable[[Lines], None]:
    def to_version_1(lines: Lines) -> None:
        lines[0]["version"] = 1
        change(lines)

    return to_version_1


def _set_study(value: object, *path: str | int) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        place: Any = study(lines)
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return change


def _insert(at: int, line: dict[str, Any]) -> Callable[[Lines], None]:
    return lambda lines: lines.insert(at, line)


def _deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def test_brackets_in_texts_do_not_hide_how_deep_a_line_is() -> None:
    assert stream._is_plain(json.dumps(_deep_between_texts(3)))
    assert not stream._is_plain(json.dumps(_deep_between_texts(100)))


@pytest.mark.parametrize(("levels", "sound"), [(stream.MAX_DEPTH, True), (stream.MAX_DEPTH + 1, False)])
def test_both_looks_at_a_line_stop_at_the_same_depth(levels: int, sound: bool) -> None:
    value = _deep(levels)
    assert stream._is_plain(json.dumps(value)) is sound
    if sound:
        stream.check_plain(value, stream.MAX_DEPTH)
    else:
        with pytest.raises(ValueError, match="nested"):
            stream.check_plain(value, stream.MAX_DEPTH)


def _deep_between_texts(levels: int) -> object:
    """Return equally deep nesting with brackets in strings between, so that a plain count of brackets looks flat."""
    value: object = 1
    for _ in range(levels):
        value = ["]", value, "["]
    return value


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_set("trial", "id", "../../etc/passwd"), "id: expected a trial's id"),
        (_set("trial", "id", "last"), "id: expected a trial's id"),
        (_set("trial", "seed", "0" * 31), "seed: expected a seed"),
        (_set("trial", "seed", "f" * 32), "not the one that study and seed plan"),
        (_set("trial", "alpha", 0), "alpha: expected at least 1e-12"),
        (_set("trial", "margin", 2), "margin: expected at most 1,"),
        (_set("trial", "margin", True), "margin: expected a number"),
        (_set("trial", "started", "yesterday"), "ISO 8601"),
        (_set("trial", "started", "0001-01-01T00:00:00+23:00"), "not a year of a trial: 1"),
        (_set("trial", "version", "x" * 65), "at most 64"),
        (_set("trial", "surprise", 1), "unknown key"),
        (_set("trial", "options", {"folder": "/home/anna"}), "unknown key"),
        (_set("trial", "options", {"controls": 1}), "true or false"),
        (_set("trial", "options", {"budget_share": 1.5}), "budget_share"),
        (_set("trial", "options", {"controls": False}), "not the one that study and seed plan"),
        (_set("trial", "host", {"kernel": "\x1b]0;owned\x07"}), "U.001B"),
        (_set("trial", "host", {"kernel": "\x9b2J"}), "U.009B"),
        (_set("trial", "host", {"\u202ekernel": 1}), "U.202E"),
        (_set("trial", "host", {"kernel": "\ud800"}), "U.D800"),
        (_set("trial", "host", {"x": _deep(100)}), "nested"),
        (_set("trial", "host", {"x": _deep(900)}), "nested"),
        (_set("trial", "host", {"x": [0] * 5000}), "more than 4096 facts"),
        (_set("trial", "host", {"x": 2**63}), "64 bits"),
        (_set("trial", "host", []), "host: expected a table"),
        (_set_study("x" * 65, "name"), "study's name"),
        (_set_study("../x", "name"), "study's name"),
        (_set_study("a\x07", "question"), "U.0007"),
        (_set_study("x" * 501, "question"), "question"),
        (_set_study("x" * 9000, "why"), "why"),
        (_set_study("x" * (1 << 20) + "é", "text"), "longer|larger"),
        (_set_study("x" * 20000, "text"), "too long"),
        (_set_study(0.0, "margin"), "margin"),
        (_set_study("nowhere", "lab", "kind"), "lab.kind"),
        (_set_study(1, "lab", "size_bytes"), "lab.size_bytes"),
        (_set_study(1e12, "budget", "time_s"), "budget"),
        (_set_study(0, "budget", "blocks"), "budget"),
        (_set_study([], "factors"), "factors: cannot be empty"),
        (_set_study([], "workloads"), "workloads: cannot be empty"),
        (_set_study("all", "factors", 0, "levels", 0, "label"), "reserved"),
        (_set_study("B", "factors", 0, "levels", 0, "label"), "is given twice"),
        (_set_study("c", "factors", 0, "reference"), "reference"),
        (_set_study([], "factors", 0, "default"), "factors.default"),
        (_set_study("Knob!", "factors", 0, "levels", 0, "settings", 0, "knob"), "knob"),
        (_set_study("x" * 5000, "factors", 0, "levels", 0, "settings", 0, "value"), "4096"),
        (
            _set_study([["path", "/etc"]], "factors", 0, "levels", 0, "settings", 0, "options"),
            "expected one of key, variable, placeholder, option",
        ),
        (_set_study("rituals", "workloads", 0, "kind"), "no workload kind"),
        (_set_study("lukewarm", "workloads", 0, "cache"), "workloads.cache"),
        (_set_study(["read"], "workloads", 0, "work", "operations"), "before the file is open"),
        (_set_study(10**7, "workloads", 0, "work", "files"), "files"),
        (_set_study("CommandWork", "workloads", 0, "work", "is"), "damaged"),
        (_set_study({"f": ["a"]}, "workloads", 0, "only"), "restricted"),
        (_set_study("parsec", "responses", 0, "unit"), "measures no"),
        (_set_study("wal", "responses", 0, "name"), "measures no"),
        (_set_study(99, "schema"), 'unknown key "schema"'),
        (_set("state", "state", "done"), "cannot follow"),
        (_set("state", "state", "resting"), 'state: expected "running"'),
        (_set("state", "at", -1), "at: expected at least 0"),
        (_set("run", "condition", "workload=v"), "no such condition"),
        (_set("run", "block", 5), "not the one that study and seed plan"),
        (_set("run", "block", 10**7), "block: expected at most 1000000"),
        (_set("run", "block", 1.0), "block: expected a whole number"),
        (_set("run", "block", "0"), "block: expected a whole number"),
        (_set("run", "slot", 17), "not the one that study and seed plan"),
        (_set("run", "slot", -1), "slot: expected at least 0"),
        (_set("run", "arm", "c"), "not the one that study and seed plan"),
        (_set("run", "kind", "placebo"), "kind: expected one of treatment"),
        (_set("run", "treatment", {}), "not the one that study and seed plan"),
        (_set("run", "attempt", 2), "not the one that study and seed plan"),
        (_set("run", "attempt", True), "attempt: expected a whole number"),
        (_set("run", "responses", {"wall": -1}), "wall"),
        (_set("run", "responses", {"wall": "fast"}), "wall"),
        (_set("run", "responses", {"wall": 1e300}), "wall"),
        (_set("run", "responses", {"beauty": 1}), "not the one that study and seed plan"),
        (_set("run", "evidence", {str(n): 1 for n in range(600)}), "at most 512"),
        (_set("run", "histograms", [[1], [1]]), "differences of latencies"),
        (_set("run", "histograms", {"read": [[1]]}), "differences of latencies"),
        (_set("run", "histograms", {"read": [[1], [True]]}), "differences of latencies"),
        (_set("run", "histograms", {"read": [[1, 2], [1]]}), "as many counts"),
        (_set("run", "histograms", {"read": [[1], [-1]]}), "pairs"),
        (_set("run", "histograms", {"read": [[1, -2], [1, 1]]}), "pairs"),
        (_set("run", "histograms", {"read": [[2**62] * 3, [1] * 3]}), "64 bits"),
        (_set("run", "histograms", {"read": [[1] * 9000] * 2}), "8192"),
        (_older(_set("run", "histograms", {"read": [[1]]})), "pairs"),
        (_older(_set("run", "histograms", {"read": [[1, -1]]})), "pairs"),
        (_older(_set("run", "histograms", {"read": [[1, 1]] * 9000})), "8192"),
        (_set("run", "files", [10**9]), "not the one that study and seed plan"),
        (_set("run", "files", [-1]), "not the one that study and seed plan"),
        (_set("run", "files", [1] * 257), "at most 256"),
        (_set("run", "failure", "x" * 9000), "at most 8192"),
        (_set("block_end", "controls", False), "does not match its runs and its plan"),
        (_set("block_end", "block", 7), "does not match its runs and its plan"),
        (_set("block_end", "void_level", "b"), "does not match its runs and its plan"),
        (_set("event", "kind", "imported"), "belongs to a store"),
        (_set("event", "kind", "A b"), "kind: expected a kind of event"),
        (_set("event", "at", "now"), "ISO 8601"),
        (_insert(1, {"run": {}}), "in the wrong place"),
        (_insert(3, {"oracle": {}}), "in the wrong place"),
        (_insert(3, {}), "expected an object"),
        (_insert(3, {"run": {}, "state": {}}), "expected an object"),
        (lambda lines: lines.insert(3, lines[1]), "in the wrong place"),
        (lambda lines: lines.insert(4, lines[4]), "is not the one that study and seed plan"),
        (lambda lines: lines.insert(-2, lines[-3]), "does not match its runs and its plan"),
        (lambda lines: lines.pop(4) and None, "does not match its runs and its plan"),
        (lambda lines: lines.insert(0, {"format": "tar"}), "not a packed trial"),
        (lambda lines: lines[0].update(version=3), "update iotrial|newer"),
        (lambda lines: lines[0].update(version="1"), "is not a packed trial"),
        (lambda lines: lines[0].update(version=0), "is not a packed trial"),
        (lambda lines: lines[0].update(author="me"), "is not a packed trial"),
    ],
)
def test_a_forged_file_is_refused_with_the_reason(change: Callable[[Lines], None], says: str) -> None:
    lines = sound_lines()
    change(lines)
    message = refused(signed(lines))
    assert any(part in message.replace("+", ".") for part in says.split("|")), message


@pytest.mark.parametrize("kind", ["trial", "state", "run", "block_end", "event"])
def test_every_field_must_be_there_and_has_a_limit(kind: str) -> None:
    too_large = ["x" * 20_000, 2**62, [0] * 9_000, {str(n): 0 for n in range(5_000)}]
    for name in set(first(sound_lines(), kind)) - {"study"}:  # a study has limits of its own
        lines = sound_lines()
        del first(lines, kind)[name]
        assert f'"{name}" is missing' in refused(signed(lines))
        for value in too_large:
            lines = sound_lines()
            first(lines, kind)[name] = value
            assert name in refused(signed(lines))


def test_files_of_a_run_end_with_the_pool() -> None:
    lines = sound_lines()
    # twice as many as the four arms of a block with controls use
    pool = 2 * 4 * study(lines)["workloads"][0]["work"]["files"]
    first(lines, "run")["files"] = [0, pool - 1]
    read(signed(lines))
    first(lines, "run")["files"] = [0, pool]
    assert "not the one that study and seed plan" in refused(signed(lines))


def _resumed(*attempts: int) -> Lines:
    """Return a trial interrupted once: its first runs have these attempts, all others the last of them."""
    lines = sound_lines()
    states = [i for i, line in enumerate(lines) if "state" in line]
    running = lines[states[0]]["state"]
    lines[states[0] + 1 : states[0] + 1] = [
        {"state": {**running, "state": "interrupted"}},
        {"state": dict(running)},
    ]
    runs = [line["run"] for line in lines if "run" in line]
    for i, run in enumerate(runs):
        run["attempt"] = attempts[min(i, len(attempts) - 1)]
    return lines


def test_attempts_follow_each_other_and_a_block_of_two_is_marked() -> None:
    assert "not the one that study and seed plan" in refused(signed(_resumed(2, 1)))
    lines = _resumed(1, 2)
    assert "does not match its runs and its plan" in refused(signed(lines))
    first(lines, "block_end")["gap"] = True
    read(signed(lines))


@pytest.mark.parametrize(
    ("pairs", "columns"),
    [
        ({}, {}),
        ({"read": [], "open": [[7, 2]]}, {"read": [[], []], "open": [[7], [2]]}),
        ({"read": [[100, 3], [110, 1], [900, 2]]}, {"read": [[100, 10, 790], [3, 1, 2]]}),
        ({"read": [[900, 1], [100, 3]]}, {"read": [[900, -800], [1, 3]]}),
    ],
)
def test_histograms_are_the_same_in_both_versions(pairs: object, columns: object) -> None:
    found = []
    for version, histograms in ((1, pairs), (2, columns)):
        lines = sound_lines()
        lines[0]["version"] = version
        first(lines, "run")["histograms"] = histograms
        store = read(signed(lines))
        found.append(dict(store.data(1).runs[0].histograms))
        again = io.BytesIO()
        store.pack(1, again)
        written = [json.loads(line) for line in gzip.decompress(again.getvalue()).splitlines()]
        assert first(written, "run")["histograms"] == columns
    assert found == [pairs, pairs]


def test_a_newer_version_says_to_update() -> None:
    lines = sound_lines()
    lines[0]["version"] = stream.VERSION + 1
    with pytest.raises(RequestError) as caught:
        read(signed(lines))
    assert caught.value.hint == "update iotrial"


@pytest.mark.parametrize("name", ["states", "runs", "block_ends", "events"])
def test_counts_that_do_not_match_are_refused(name: str) -> None:
    lines = sound_lines()
    lines[-1]["end"][name] += 1
    assert "counts" in refused(signed(lines, counts=False))


def test_a_count_is_a_number_not_a_truth() -> None:
    lines = sound_lines()
    assert lines[-1]["end"]["events"] == 1
    lines[-1]["end"]["events"] = True
    assert "counts" in refused(signed(lines, counts=False))


@pytest.mark.parametrize("name", reading.LIMITS)
def test_a_trial_of_more_records_than_any_needs_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(reading.LIMITS, name, 0)
    assert f"holds more than 0 {name.replace('_', ' ')}" in refused(sound())


@pytest.mark.parametrize("digest", ['"sha256":null', '"sha256":""', '"sha256":0', '"author":"me"'])
def test_a_file_without_its_digest_is_refused(digest: str) -> None:
    whole = gzip.decompress(sound()).decode()
    at = whole.rindex('"sha256"')
    assert "digest" in refused(gzip.compress(f"{whole[:at]}{digest}}}}}\n".encode(), mtime=0))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b'{"format":"iotrial packed trial","version":1,"version":1}\n', "key twice"),
        (b"x" * (stream.MAX_LINE + 2 * stream._PIECE), "is larger than 4 MiB"),
        (b'{"format":"iotrial packed trial","version":NaN}\n', "not a finite number"),
        (b'{"format":"iotrial packed trial","version":1e999}\n', "not finite"),
        (b'{"format":"iotrial packed trial","version":1E+309}\n', "not finite"),
        (b'{"format":"iotrial packed trial","version":-' + b"9" * 310 + b".0}\n", "not finite"),
        (b'{"format":"iotrial packed trial","version":[0.5,9223372036854775808]}\n', "64 bits"),
        (b'{"format":"iotrial packed trial","version":[0.5, -9999999999999999999]}\n', "64 bits"),
        (b'{"format":"iotrial packed trial","version":' + b"9" * 5000 + b"}\n", "digits"),
        (b"[" * 100_000 + b"\n", "nested"),
        (b'{"a":' * 100_000 + b"\n", "nested"),
        (b"[]\n", "an object"),
        (b"\xff\n", "UTF-8"),
        (b"\xef\xbb\xbf{}\n", "BOM"),
        (b"{}", "is cut off"),
        (b"", "is cut off"),
        (b"\n", "line 1"),
    ],
)
def test_lines_that_are_no_plain_json_are_refused(raw: bytes, says: str) -> None:
    assert says in refused(gzip.compress(raw))


def test_what_is_wrong_with_the_gzip_stream_is_refused() -> None:
    data = sound()
    assert "not a packed trial" in refused(b"PK\x03\x04" + data)
    assert "not a packed trial" in refused(b"")
    assert "not a packed trial" in refused(
        gzip.compress(b"", mtime=0)[:3] + b"\x08" + data[4:]
    )  # with a file name
    for cut in (5, 20, len(data) // 2, len(data) - 9, len(data) - 1):
        assert "is cut off" in refused(data[:cut])
    assert "something follows its end" in refused(gzip.compress(gzip.decompress(data) + b"{}\n", mtime=0))
    assert "follows" in refused(data + b"\0")
    assert "follows" in refused(data + data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "_PIECE", len(data) - 4)  # the rest comes in a piece of its own
        assert "follows" in refused(data + b"\0")
    assert "damaged" in refused(data[:-8] + bytes(4) + data[-4:])  # the CRC
    assert "damaged" in refused(data[:-4] + bytes(4))  # the length


def _bomb(line: bytes, times: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(line) for _ in range(times)) + packer.flush()


@pytest.mark.parametrize("line", [b"\0" * (1 << 20), b" " * 1000 + b"\n", b"{}\n" * 1000])
def test_a_bomb_stops_early_and_takes_little_memory(line: bytes) -> None:
    bomb = _bomb(line, (64 << 20) // len(line))
    tracemalloc.start()
    try:
        refused(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


def test_what_unpacks_to_far_more_than_it_should_is_not_read_further() -> None:
    data = signed(sound_lines())
    body = gzip.decompress(data)
    padding = body.splitlines(keepends=True)[0]
    with pytest.raises(RequestError, match="more than the maximum of a trial"):
        for _ in stream._unpacked(io.BytesIO(_bomb(padding, (64 << 20) // len(padding))), "x"):
            pass


def test_limits_of_size_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_PACKED", 100)
    assert "larger than" in refused(sound())
    monkeypatch.undo()
    monkeypatch.setattr(stream, "MAX_BYTES", 100)
    assert "unpacks to more" in refused(sound())


def test_a_study_that_multiplies_beyond_measure_is_refused_at_once() -> None:
    lines = sound_lines()
    declared = study(lines)
    factor = declared["factors"][0]
    labels = [f"l{n}" for n in range(200)]
    wide = {
        **factor,
        "levels": [{"label": label, "settings": factor["levels"][0]["settings"]} for label in labels],
        "default": labels,
        "reference": "l0",
    }
    declared["factors"] = []
    for index in range(8):
        named = copy.deepcopy(wide)
        named["name"] = f"f{index}"
        for level in named["levels"]:
            level["settings"] = [{"knob": f"k{index}", "value": "1", "options": []}]
        declared["factors"].append(named)
    assert "arms" in refused(signed(lines))
    for factor in declared["factors"][1:]:
        factor["role"] = "condition"
    declared["factors"][0]["levels"] = declared["factors"][0]["levels"][:2]
    declared["factors"][0]["default"] = labels[:2]
    assert "conditions" in refused(signed(lines))
