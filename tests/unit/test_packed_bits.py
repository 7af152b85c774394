"""One bit flipped in a packed trial: every verb that reads it names the file, or prints the same as before."""

from __future__ import annotations

import gzip
import json
import random
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from store_examples import filled, header

from iotrial import cli
from iotrial.store import Store
from iotrial.study.catalogue import find
from iotrial.study.select import select
from values import replace

Said = tuple[int, str, str]
NAME = "flipped.iotrial"
VERBS = (
    ("report", NAME, "--json"),
    ("import", NAME, "--json"),
    ("plan", "--like", NAME, "--lab", "directory"),
    ("run", "--like", NAME, "--lab", "directory", "--on", "/nonexistent/lab"),
)
BITS_OF_FILE = 24
BITS_OF_KIND = 6


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with its own store."""
    monkeypatch.setenv("IOTRIAL_STORE", str(tmp_path / "state" / "trials.db"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def said(words: tuple[str, ...], data: bytes) -> Said:
    """Run the verb in this process, on a file with these bytes and a store without trials."""
    Path(NAME).write_bytes(data)
    for file in Path("state").glob("trials.db*"):
        file.unlink()
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["iotrial", *words])
        status = cli._status()
    return status, out.getvalue(), err.getvalue()


@cache
def whole() -> bytes:
    """Return a packed trial with records of every kind, of a study planned for a folder."""
    study = select(find("files/permissions"), sets={"mode": ["0444"]}, conditions={"cache": ["warm"]})
    kept = tuple(factor for factor in study.factors if factor.name in ("mode", "cache", "size"))
    of = header("a" * 16, controls=True, asked=["cache", "mode"], lab="directory", time_s=60.0, blocks=2)
    of = replace(of, study=replace(study, factors=kept, claims=()))
    file = BytesIO()
    with Store.in_memory() as store:
        filled(store, of, blocks=2)
        store.pack(1, file)
    return file.getvalue()


@cache
def before(words: tuple[str, ...]) -> Said:
    found = said(words, whole())
    # run is refused for its folder, after the file was read; two blocks are no answer
    assert found[0] == {"run": 2, "report": 6}.get(words[0], 0), found
    assert "Traceback" not in found[2]
    return found


def check(words: tuple[str, ...], data: bytes, what: str) -> bool:
    """Return whether the verb refused and named the file. Otherwise its output must be unchanged."""
    status, out, err = said(words, data)
    if (status, out, err) == before(words):
        return False
    assert status == 2, f"{what}: {status} {out[:500]} {err[:500]}"
    assert out == "", what
    assert NAME in err, f"{what}: {err[:500]}"
    if words[0] == "import":
        assert "no trial" in said(("report", "last"), data)[2]
    return True


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_a_bit_of_the_file_is_named_or_changes_nothing(words: tuple[str, ...]) -> None:
    """Flip bits in all ten bytes of the gzip header, the eight of its trailer, and some between."""
    data = whole()
    draw = random.Random(16)
    places = [
        *range(10),
        *range(len(data) - 8, len(data)),
        *(draw.randrange(len(data)) for _ in range(BITS_OF_FILE)),
    ]
    refused = 0
    for at in places:
        bit = 1 << draw.randrange(8)
        refused += check(
            words, data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :], f"bit {bit} of byte {at}"
        )
    # time, extra flags and system in the gzip header do not affect the trial
    assert len(places) - 6 <= refused < len(places)


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_a_bit_of_any_record_is_named(words: tuple[str, ...]) -> None:
    """The records are unpacked, flipped and packed again, so that the gzip checksum matches."""
    text = gzip.decompress(whole())
    starts: dict[str, list[range]] = {}
    begin = 0
    for line in text.splitlines(keepends=True):
        kind = next(iter(json.loads(line)))
        starts.setdefault(kind, []).append(range(begin, begin + len(line)))
        begin += len(line)
    assert set(starts) == {"format", "trial", "state", "run", "block_end", "event", "end"}
    draw = random.Random(21)
    for kind, lines in starts.items():
        for _ in range(BITS_OF_KIND):
            at, bit = draw.choice(draw.choice(lines)), 1 << draw.randrange(8)
            changed = text[:at] + bytes([text[at] ^ bit]) + text[at + 1 :]
            packed = gzip.compress(changed, compresslevel=1, mtime=0)
            assert check(words, packed, f"{kind}: bit {bit} of byte {at}: {changed[at - 20 : at + 20]!r}")
