"""Commands of stores that powercut knows, and clients that tell what a store said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from iotrial.errors import RequestError
from iotrial.powercut import clients, stores
from iotrial.powercut.service import command_of

CLIENT = [sys.executable, "-I", clients.__file__]


def there(program: str, **_path: str) -> str:
    return f"/there/{program}"


def nowhere(_program: str, **_path: str) -> None:
    return None


def test_options_are_those_of_the_server_and_pragmas_those_of_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores.shutil, "which", there)
    redis = stores.commands_of("redis", ["--appendonly", "yes"])
    assert redis["server"][0] == "/there/redis-server"
    assert redis["server"][-2:] == ("--appendonly", "yes")
    assert redis["dump"][-3:] == ("redis", "dump", "{port}")
    sqlite = stores.commands_of("sqlite", ["synchronous=extra"])
    assert sqlite["server"] == ()
    assert sqlite["client"][-4:] == ("sqlite", "work", "{dir}", "synchronous=extra")
    assert sqlite["dump"][-3:] == ("dump", "{dir}", "synchronous=extra")


def test_programs_of_a_line_are_found_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores.shutil, "which", there)
    assert stores.commands_of("mariadb", [])["prepare"][:2] == command_of(["mkdir x"])[:2]
    line = stores.commands_of("mariadb", [])["prepare"][2]
    assert "/there/mariadb-install-db --no-defaults" in line
    assert "/there//there" not in line


def test_the_text_of_a_client_has_nothing_that_a_setting_could_fill_in() -> None:
    words = stores.commands_of("sqlite", [])["client"]
    assert not any(brace in word for word in words[:-1] for brace in "{}")


def test_a_store_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores.shutil, "which", nowhere)
    with pytest.raises(RequestError, match="etcd is not installed") as caught:
        stores.commands_of("etcd", [])
    assert "apt install etcd-server etcd-client" in str(caught.value.hint)


def client(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLIENT, *words], capture_output=True, text=True, check=False, timeout=60)


def test_the_client_of_sqlite_puts_and_dumps(tmp_path: Path) -> None:
    worked = client("sqlite", "work", str(tmp_path), "journal_mode=wal")
    assert worked.returncode == 0, worked.stderr
    lines = worked.stdout.splitlines()
    assert lines[:2] == ["begins k0 v0", "acknowledged k0 v0"]
    last = dict(line.split()[1:] for line in lines if line.startswith("acknowledged"))
    dumped = client("sqlite", "dump", str(tmp_path))
    assert dict(map(str.split, dumped.stdout.splitlines())) == last
    assert len(last) == 17


def test_a_dump_of_a_damaged_database_fails(tmp_path: Path) -> None:
    client("sqlite", "work", str(tmp_path))
    with (tmp_path / "db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    assert client("sqlite", "dump", str(tmp_path)).returncode != 0


def test_a_database_that_was_never_made_is_empty(tmp_path: Path) -> None:
    dumped = client("sqlite", "dump", str(tmp_path))
    assert (dumped.returncode, dumped.stdout) == (0, "")


def test_a_client_acknowledges_nothing_that_its_server_refused(tmp_path: Path) -> None:
    (tmp_path / "psql").write_text("#!/bin/sh\nread create; read done; echo done; read put; exit 3\n")
    (tmp_path / "psql").chmod(0o755)
    done = subprocess.run(
        [*CLIENT, "postgresql", "work", "1"],
        capture_output=True, text=True, check=False, timeout=60, env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.stdout == "begins k0 v0\n"
    assert done.returncode != 0
    assert "ended with status 3" in done.stderr
