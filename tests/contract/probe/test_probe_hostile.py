"""Traps that other users and foreign commands may set for root, and absurd requests."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from probe_client import BINARY, NOBODY, READING, Probe, ProbeError, make_set, names

OWNER = {"uid": NOBODY, "gid": NOBODY}
VERBS_ON_FILES = [
    ("set_mode", {"mode": "0777"}),
    ("set_size", {"size": 7}),
    ("evict", {}),
    ("warm", {}),
    ("residency", {}),
    ("fileset_verify", {}),
    ("files", {"operations": ["open-truncate", "write-byte", "close"]}),
    ("files", {"operations": ["open-write", "write-byte", "close"]}),
    ("files", {"operations": READING}),
]


@pytest.fixture
def victim(folder: Path) -> Path:
    """Return a file outside the set, which nothing may touch."""
    path = folder / "victim"
    path.write_text("precious\n")
    path.chmod(0o600)
    os.utime(path, ns=(10**18, 10**18))
    return path


def state(path: Path) -> tuple[str, int, int, int]:
    found = path.stat()
    return path.read_text(), found.st_mode, found.st_mtime_ns, found.st_size


def replace(path: Path, target: Path) -> None:
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize(("verb", "fields"), VERBS_ON_FILES)
def test_a_link_in_the_place_of_a_file_is_not_followed(
    probe: Probe, folder: Path, victim: Path, verb: str, fields: dict[str, object]
) -> None:
    files = make_set(probe, folder, count=3)
    before = state(victim)
    replace(files / "f000001", victim)
    with pytest.raises(ProbeError, match=r"symbolic links|expected"):
        probe(verb, set="s", **fields)
    assert state(victim) == before


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(probe: Probe, folder: Path) -> None:
    files = make_set(probe, folder, count=2)
    (files / "f000001").unlink()
    os.mkfifo(files / "f000001")
    for verb in ("evict", "fileset_verify"):
        with pytest.raises(ProbeError):
            probe(verb, set="s")
    assert probe("warm", set="s")["bytes"] == 100  # of the other file


def as_nobody(probe: Probe, script: str, name: str = "s") -> None:
    probe("command", set=name, steps=[{"name": "x", "argv": ["sh", "-c", script]}], cwd="{dir}", user=OWNER)


@pytest.mark.root
@pytest.mark.parametrize(
    "script",
    [
        "ln -sf ../victim f000001",
        "ln -sfn .. d001.new && rm -r d001 && mv d001.new d001",
        "rm f000001 && mkfifo f000001",
        "rm f000001 && mkdir f000001",
        "cd ../t && ln -sf ../victim f000000",
        "(sleep 0.2; ln -sf ../victim f000001) & ln -sf ../victim f000001",
        "ln -sf ../victim f000001; exit 3",
    ],
)
def test_a_set_in_which_a_command_has_swapped_a_name_is_not_touched_again(
    isolated: Probe, folder: Path, victim: Path, script: str
) -> None:
    directories = 2 if "d001" in script else 1
    make_set(isolated, folder, owner=OWNER, directories=directories)
    make_set(isolated, folder, "t", owner=OWNER)
    before = state(victim)
    with pytest.raises(ProbeError, match="left as it is") as caught:
        as_nobody(isolated, script)
    assert caught.value.code == "verify"
    swapped = "t" if "../t" in script else "s"
    for verb, fields in VERBS_ON_FILES:
        with pytest.raises(ProbeError, match="left as it is"):
            isolated(verb, set=swapped, **fields)
    assert state(victim) == before
    isolated("remove", path=str(folder / swapped), recursive=True)
    assert state(victim) == before


@pytest.mark.root
def test_what_a_command_may_do_to_its_files_does_not_spoil_the_set(isolated: Probe, folder: Path) -> None:
    make_set(isolated, folder, owner=OWNER)
    as_nobody(isolated, "rm f000001; echo new > f000002; chmod 600 f000003; touch own; ln -s own link")
    isolated("set_mode", set="s", files=[2, 3], mode="0640")
    assert (folder / "s" / "f000002").read_text() == "new\n"


def test_removing_a_tree_removes_links_and_nothing_behind_them(
    probe: Probe, folder: Path, victim: Path
) -> None:
    tree = folder / "tree"
    (tree / "inner").mkdir(parents=True)
    kept = folder / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    for name, target in (
        ("up", ".."),
        ("root", "/"),
        ("kept", "../kept"),
        ("victim", "../victim"),
        ("self", "."),
    ):
        (tree / name).symlink_to(target)
        (tree / "inner" / name).symlink_to(target)
    before = state(victim)
    probe("remove", path=str(tree), recursive=True)
    assert names(folder) == ["kept", "victim"]
    assert state(victim) == before
    assert (kept / "file").read_text() == "kept"


def test_removing_a_link_to_a_folder_removes_the_link(probe: Probe, folder: Path) -> None:
    (folder / "kept").mkdir()
    (folder / "kept" / "file").write_text("kept")
    (folder / "link").symlink_to("kept")
    probe("remove", path=str(folder / "link"), recursive=True)
    assert names(folder) == ["kept"]
    assert names(folder / "kept") == ["file"]


@pytest.mark.parametrize("kind", ["folder", "link to a folder", "dangling link", "file"])
def test_an_exclusive_folder_is_never_somebody_elses(probe: Probe, folder: Path, kind: str) -> None:
    place = folder / "lab"
    (folder / "elsewhere").mkdir()
    match kind:
        case "folder":
            place.mkdir()
        case "link to a folder":
            place.symlink_to("elsewhere")
        case "dangling link":
            place.symlink_to("nowhere")
        case "file":
            place.write_text("")
    with pytest.raises(ProbeError) as caught:
        probe("mkdir", path=str(place), exclusive=True)
    assert (caught.value.code, caught.value.errno) == ("os", 17)
    assert not (folder / "nowhere").exists()


def test_a_set_is_never_made_over_names_that_are_there(probe: Probe, folder: Path, victim: Path) -> None:
    (folder / "s").mkdir()
    (folder / "s" / "f000001").symlink_to(victim)
    before = state(victim)
    with pytest.raises(ProbeError, match="File exists"):
        make_set(probe, folder, count=3)
    assert state(victim) == before


HOSTILE_LINES = [
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"id":' + b"[" * 100 + b"]" * 100 + b',"verb":"time"}',
    b'{"id":1,"verb":"read","path":"' + b"x" * (4 << 20) + b'"}',
    b'{"id":1,"verb":"' + b"x" * (1 << 20) + b'"}',
    b'{"id":1,"verb":"read","path":"a\\u0000b"}',
    b'{"id":1,"verb":"read","path":"\\ud800"}',
    b'{"id":1,"verb":"read","path":"\xff\xfe"}',
    b'{"id":1,"verb":"image","folder":"/","size":1e400,"fill":"write"}',
    b'{"id":1,"verb":"image","folder":"/","size":-1,"fill":"write"}',
    b'{"id":1,"verb":"fileset","set":"s","dir":"/x","count":4294967295,"size":18446744073709551615,'
    b'"seed":1,"content":"zeros","create":false}',
    b'{"id":1,"verb":"fileset","set":"s","dir":"relative","count":1,"size":1,"seed":1,"content":"zeros"}',
    b'{"id":1,"verb":"read","path":null,"path":7}',
    b"\x00",
    b'"verb"',
    b"null",
]


@pytest.mark.parametrize("line", HOSTILE_LINES, ids=lambda line: line[:40].decode("latin-1"))
def test_a_hostile_line_gets_one_short_answer_and_the_next_line_its_own(line: bytes) -> None:
    given = line + b'\n{"id":2,"verb":"time"}\n'
    done = subprocess.run([BINARY], input=given, capture_output=True, timeout=60, check=True)
    first, second, *rest = done.stdout.split(b"\n")
    assert rest == [b""]
    assert len(first) < 5 << 20
    assert set(json.loads(first)) <= {"id", "error", "ok"}
    assert set(json.loads(second)) == {"id", "ok"}


def test_a_last_line_that_was_cut_off_is_answered_and_ends_the_probe() -> None:
    done = subprocess.run([BINARY], input=b'{"id":1,"ve', capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout)["error"]["code"] == "bad_request"
