"""Every example of docs/try.md runs as it stands, shortened to two blocks, with the real programs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import iotrial, stored_runs

from as_nobody import NOBODY

pytestmark = pytest.mark.root

PAGE = (Path(__file__).parents[2] / "docs" / "try.md").read_text()
EXAMPLES = [
    line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines() if line
]
SCRIPT = "#!/bin/sh\ndd if=data of=/dev/null bs=$BLOCK 2> /dev/null\necho took=0.5\n"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"nothing listens on {port}")


@pytest.fixture(scope="module")
def postgres(disk_folder: Path) -> Iterator[dict[str, str]]:
    """Yield the variables with which pgbench finds a server of its own, with its tables."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    programs = str(found[-1]) if found else str(Path(shutil.which("initdb") or "/nowhere/x").parent)
    if not (Path(programs) / "initdb").exists() or shutil.which("pgbench") is None:
        pytest.skip("needs PostgreSQL and pgbench")
    folder = Path("/var/tmp") / f"iotrial-pg-{os.getpid()}"
    folder.mkdir()
    shutil.chown(folder, NOBODY, NOBODY)
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    subprocess.run(
        [*as_nobody, f"{programs}/initdb", "-D", str(folder / "data"), "-U", "me", "-A", "trust", "--no-sync"],
        check=True, capture_output=True, cwd=folder,
    )  # fmt: skip
    port = free_port()
    server = subprocess.Popen(
        [*as_nobody, f"{programs}/postgres", "-D", str(folder / "data"), "-p", str(port), "-k", str(folder), "-F"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder,
    )  # fmt: skip
    wait_for(port)
    variables = {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "me", "PGDATABASE": "postgres"}
    subprocess.run(["pgbench", "-i", "-q"], check=True, capture_output=True, env={**os.environ, **variables})
    yield variables
    server.terminate()
    server.wait(20)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("web")
    (folder / "small").write_bytes(b"x" * 100)
    (folder / "large").write_bytes(b"x" * 1_000_000)
    port = free_port()
    argv = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(port)
    yield port
    server.terminate()
    server.wait(10)


@pytest.fixture
def folder(disk_folder: Path) -> Iterator[Path]:
    """Yield the folder that the examples work in, on a file system of its own."""
    image, folder = disk_folder / "try.img", disk_folder / "try"
    image.touch()
    os.truncate(image, 64 << 20)
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=True)
    for number in range(40):
        (folder / f"log{number}").write_text("an error\n" * 2000)
    (folder / "data").write_bytes(os.urandom(200_000))
    (folder / "measure.sh").write_text(SCRIPT)
    (folder / "measure.sh").chmod(0o755)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()
    image.unlink()


def test_the_page_has_examples_with_each_kind_of_program() -> None:
    assert len(EXAMPLES) >= 8
    for program in ("pgbench", "fio", "siege", "measure.sh", "grep"):
        assert any(program in one for one in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: " ".join(one.split()[2:5]))
def test_an_example_of_the_page_runs(
    example: str, folder: Path, state: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if "pgbench" in example:
        for name, value in request.getfixturevalue("postgres").items():
            monkeypatch.setenv(name, value)
    if "siege" in example:
        if shutil.which("siege") is None:
            pytest.skip("needs siege")
        example = example.replace(":8000/", f":{request.getfixturevalue('web')}/")
    words = shlex.split(example)
    assert words[:2] == ["iotrial", "try"]
    iotrial("try", "--blocks", "2", "--no-stop", *words[2:], cwd=folder)
    runs = stored_runs(state)
    assert len(runs) >= 4
    assert not [run["failure"] for run in runs if run["failure"]]
    for name in re.findall(r"--response '?(\w+)=", example):
        assert all(run["responses"][name] > 0 for run in runs)
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(("iotrial", "."))) == []
