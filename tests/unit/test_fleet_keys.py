"""Fleet keys, checked with the OpenSSL program, and rejected keys and addresses."""

from __future__ import annotations

import io
import json
import stat
import subprocess
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from iotrial.cli import cli
from iotrial.errors import RequestError
from iotrial.fleet.engine import address_of, host_name, security
from iotrial.fleet.keys import Keys, Part, key_files, make_keys

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet") / "keys"
    make_keys(folder)
    return folder


def verified(folder: Path, name: str, purpose: str, authority: Path) -> bool:
    argv = ["openssl", "verify", "-purpose", purpose, "-CAfile", str(authority), str(folder / name)]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def test_each_part_has_a_certificate_for_what_it_does_and_no_more(keys: Path) -> None:
    authority = keys / "ca.pem"
    for part in Part:
        assert verified(keys, f"{part}.pem", "sslclient", authority)
        assert verified(keys, f"{part}.pem", "sslserver", authority) == (part is not Part.CLIENT)


def test_the_authoritys_own_key_is_nowhere(keys: Path) -> None:
    public = ["openssl", "x509", "-in", str(keys / "ca.pem"), "-noout", "-pubkey"]
    authority = subprocess.run(public, capture_output=True, check=True).stdout
    for path in keys.glob("*-key.pem"):
        own = subprocess.run(
            ["openssl", "pkey", "-in", str(path), "-pubout"], capture_output=True, check=True
        )
        assert own.stdout != authority
    assert len(list(keys.glob("*-key.pem"))) == 3


def test_keys_of_another_set_are_not_of_this_one(keys: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "other")
    assert not verified(tmp_path / "other", "client.pem", "sslclient", keys / "ca.pem")


def test_keys_are_their_owners_alone(keys: Path) -> None:
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {0o600}


def test_nothing_is_overwritten_and_where_one_file_is_in_the_way_none_is_made(tmp_path: Path) -> None:
    (tmp_path / "worker-key.pem").symlink_to("/etc/passwd")
    with pytest.raises(RequestError, match=r"worker-key\.pem already exists"):
        make_keys(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["worker-key.pem"]


def test_a_key_that_others_can_read_or_that_is_missing_is_refused(tmp_path: Path) -> None:
    make_keys(tmp_path)
    (tmp_path / "client-key.pem").chmod(0o644)
    with pytest.raises(RequestError, match="others can read this key"):
        key_files(tmp_path, Part.CLIENT)
    key_files(tmp_path, Part.WORKER)
    (tmp_path / "worker.pem").unlink()
    with pytest.raises(RequestError, match="No such file"):
        key_files(tmp_path, Part.WORKER)


def test_the_command_says_which_machine_needs_which_files(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["fleet", "keys", str(tmp_path / "a"), "--json"], standalone_mode=False)
    jsonschema.validate(
        json.loads(done.output), json.loads((ROOT / "schemas/fleet-keys.schema.json").read_text())
    )
    done = CliRunner().invoke(cli, ["fleet", "keys", str(tmp_path / "b")], standalone_mode=False)
    assert "every host that measures: ca.pem worker.pem worker-key.pem" in done.output


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:8786", "tls://10.0.0.1:8786"])
def test_an_address_is_one_for_tls_whatever_is_left_out(text: str) -> None:
    assert address_of(text, "--fleet") == "tls://10.0.0.1:8786"


@pytest.mark.parametrize(
    "text", ["", "tcp://10.0.0.1:1", "inproc://x", ":8786", "a:b", "a:99999", "a b", "tls://", "x/y"]
)
def test_any_other_address_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="expected tls://HOST:PORT"):
        address_of(text, "--fleet")


def test_an_address_of_version_6_is_one_in_brackets() -> None:
    assert address_of("[fe80::1%eth0]:1", "--bind") == "tls://[fe80::1%eth0]:1"


@pytest.mark.parametrize("name", ["", "a b", "-a", "ä", "a/b", "x" * 64, "a\x1b[2J"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="not a valid host name: use"):
        host_name(name)


def test_keys_pass_by_standard_input_as_they_are_in_files(keys: Path) -> None:
    worker = Keys.in_folder(keys, Part.WORKER)
    assert Keys.from_line(io.BytesIO(worker.line() + b"more")) == worker
    assert worker.key == (keys / "worker-key.pem").read_text()
    for text in (b"", b"-----BEGIN", b"[]\n", b'{"authority": "x"}\n'):
        with pytest.raises(RequestError, match="--keys -"):
            Keys.from_line(io.BytesIO(text))


def test_what_is_no_key_is_refused_before_anything_listens() -> None:
    with pytest.raises(RequestError, match="not the keys of a fleet"):
        security(Keys("a\nb", "c\nd", "e\nf"))
