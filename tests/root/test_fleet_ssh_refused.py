"""Hosts by ssh that refuse, lack something, or are hostile: what is said of them, and that nothing is sent or believed."""

from __future__ import annotations

import json
import os
import tarfile
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from iotrial.errors import IotrialError, PrivilegeError, RequestError
from iotrial.fleet.link import Lost
from iotrial.fleet.ssh.bundle import Bundle
from iotrial.fleet.ssh.link import SshLink
from iotrial.fleet.ssh.placing import look
from iotrial.fleet.values import Distrusted
from ssh_hosts import Bench, Missing, SshHost, ssh_to

pytestmark = [pytest.mark.root, pytest.mark.long]  # hosts with networks of their own, started and ended


@pytest.fixture(scope="module")
def nothing(disk_folder: Path) -> Bundle:
    """A bundle with nothing in it but its manifest, for hosts that never begin."""
    path = Path(tempfile.mkdtemp(dir=disk_folder)) / "nothing.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("MANIFEST"))
    return Bundle(path, "0" * 64, os.uname().machine, (2, 17), 0, path.stat().st_size)


@pytest.fixture(scope="module")
def hostile(disk_folder: Path, nothing: Bundle) -> Iterator[tuple[SshHost, Bench]]:
    """A host that runs the file ``forced`` whatever it is asked for."""
    folder = Path(tempfile.mkdtemp(dir=disk_folder))
    folder.chmod(0o755)
    try:
        made = Bench(folder / "bench")
    except Missing as missing:
        pytest.skip(f"needs {missing}")
    host = made.host("hostile")
    keys = host.folder / "home-root/.ssh/authorized_keys"
    keys.write_text(f'command="sh /root/forced" {keys.read_text()}')
    yield host, made
    made.close()


def test_an_unknown_host_key_is_refused_and_nothing_is_sent(bench: Bench, nothing: Bundle) -> None:
    host = bench.host("unknown", known=False)
    with pytest.raises(RequestError, match="its key is not known here") as told:
        SshLink(ssh_to(host, bench), nothing).facts()
    assert "fingerprint" in str(told.value.hint)
    assert not host.cache.exists()
    assert not bench.known.read_text()
    # another key than the one that is known is told apart
    other = (bench.folder / "id.pub").read_text().split()
    bench.known.write_text(f"{host.address} {other[0]} {other[1]}\n")
    with pytest.raises(RequestError, match="not the one that is known"):
        SshLink(ssh_to(host, bench), nothing).facts()


def test_a_host_without_access_says_what_has_to_work(bench: Bench, nothing: Bundle) -> None:
    host = bench.host("closed", access=False)
    with pytest.raises(PrivilegeError, match="no access") as told:
        SshLink(ssh_to(host, bench), nothing).facts()
    assert "BatchMode" in str(told.value.hint)


def test_a_host_that_lacks_what_is_needed_is_told_both_versions(bench: Bench, nothing: Bundle) -> None:
    old = "echo 'echo glibc 2.5' > /run/getconf; chmod 755 /run/getconf; mount --bind /run/getconf /usr/bin/getconf"
    host = bench.host("old", extra=old)
    with pytest.raises(
        RequestError,
        match=r"GNU C library 2\.5, .* 2\.17 or later",
    ):
        SshLink(ssh_to(host, bench), nothing).facts()
    assert not host.cache.exists()


def test_a_host_that_is_not_there_is_lost_and_may_come_back(bench: Bench, nothing: Bundle) -> None:
    host = bench.host("gone")
    host.close()
    with pytest.raises(Lost, match="cannot be reached"):
        SshLink(ssh_to(host, bench), nothing).facts()


#: instead of what was sent: looks like it until it is asked; $1 is the token, what comes out is hostile
_FORCED = """#!/bin/sh
case $SSH_ORIGINAL_COMMAND in
*iotrial.fleet.ssh.resident*) ;;
*) exec sh -c "$SSH_ORIGINAL_COMMAND";;
esac
token=$(echo "$SSH_ORIGINAL_COMMAND" | sed 's/.*resident [0-9a-f]* \\([0-9a-f]*\\) .*/\\1/')
{before}
echo; echo iotrial-host 1 $token
read line
{answer}
sleep 100
"""
_BODY = '{"n": 1, "bytes": %d}\n%s\n'


def _printed(text: str) -> str:
    return "cat <<'END'\n" + text + "END"


def _error(message: str) -> str:
    body = json.dumps({"error": {"code": "x", "message": message, "hint": message}})
    return _printed(_BODY % (len(body), body))


@pytest.mark.parametrize(
    ("before", "answer", "kind", "words"),
    [
        ("head -c 1000000 /dev/urandom", "", Distrusted, "where a line was expected"),
        ("", "head -c 1000000 /dev/zero", Distrusted, "where a line was expected"),
        ("", "yes | tr -d '\\n'", Distrusted, "where a line was expected"),
        ("", _printed("no JSON\n"), Distrusted, "host hostile"),
        ("", _printed("[1, 2]\n"), Distrusted, "wanted an object"),
        ("", _printed('{"n": 1, "bytes": 99999999999}\n'), Distrusted, "bytes"),
        ("", _printed('{"n": 2, "bytes": 2}\n{}\n'), Distrusted, "not asked"),
        ("", _printed('{"n": 1, "bytes": 1}\n{}\n'), Distrusted, "does not end"),
        ("", _printed(_BODY % (2, "{}")), Distrusted, "lacks"),
        ("", _printed(_BODY % (8, '{"error"')), Distrusted, "cannot be read"),
        ("", _error("\x1b[2J\u202e"), IotrialError, r"\\x1b\[2J\\u202e"),
        ("printf '\\033[2J' >&2; exit 3", "", IotrialError, r"does not start \(\\x1b\[2J\)"),
        ("", "exit 0", Lost, "ended with status 0"),
    ],
    ids=[
        "garbage before", "zeros", "a line without end", "no JSON", "no object", "an answer of 99 GB", "another answer",
        "a wrong length", "empty facts", "an empty error", "an error that steers", "words that steer", "an end",
    ],
)  # fmt: skip
def test_what_a_hostile_host_sends_is_bounded_not_believed_and_steers_no_terminal(
    hostile: tuple[SshHost, Bench],
    nothing: Bundle,
    before: str,
    answer: str,
    kind: type[IotrialError],
    words: str,
) -> None:
    host, bench = hostile
    (host.folder / "home-root/forced").write_text(_FORCED.format(before=before, answer=answer))
    with pytest.raises(kind, match=words) as told:
        SshLink(ssh_to(host, bench), nothing).facts()
    for character in told.value.message + (told.value.hint or ""):
        assert unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len(told.value.message) < 5000


def test_a_host_whose_shell_says_something_first_is_understood_and_one_that_floods_is_not(
    hostile: tuple[SshHost, Bench], nothing: Bundle
) -> None:
    host, bench = hostile
    forced = host.folder / "home-root/forced"
    forced.write_text('echo welcome; uname\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    assert look(ssh_to(host, bench), nothing).root
    forced.write_text('head -c 2000000 /dev/urandom\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n')
    with pytest.raises(Lost, match="more than 65536 bytes"):
        look(ssh_to(host, bench), nothing)
    forced.write_text("exec cat\n")
    with pytest.raises(Lost, match="no answer to be understood"):
        look(ssh_to(host, bench), nothing)
