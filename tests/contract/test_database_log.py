"""The log of a database moves between two places, and its data stay on the same blocks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from iotrial.errors import MissingTool
from iotrial.lab.target import Target
from iotrial.study import server
from iotrial.study.server import NOBODY
from iotrial.study.work import LabContext
from iotrial.workloads.database import DatabaseWork
from iotrial.workloads.databases import engine, rows

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="a server must not run as root, so its folder is another's"
)

ROWS = 2_000
COUNT = "SELECT count(*) FROM entries;\n"


@pytest.fixture
def lab(disk_folder: Path, target: Target) -> Iterator[LabContext]:
    root, log = disk_folder / "d", disk_folder / "l"
    disk_folder.chmod(0o755)
    for path in (root, log / "own"):
        path.mkdir(parents=True, mode=0o755)
    yield LabContext(
        target, str(root), str(root / "set"), user={"uid": NOBODY, "gid": NOBODY}, log=str(log / "own")
    )
    subprocess.run(["rm", "-r", root, log], check=True)


def blocks_of(root: Path) -> dict[str, str]:
    """Return where each file of a table lies, as filefrag prints it.

    Except pg_internal.init: PostgreSQL caches its catalogue there and may rewrite it at any time.
    """
    files = [
        path
        for path in root.rglob("*")
        if path.suffix == ".ibd" or (path.parent.name.isdigit() and path.name != "pg_internal.init")
    ]
    assert files
    subprocess.run(["sync", "-f", root], check=True)
    return {
        str(path): subprocess.check_output(["filefrag", "-e", path], text=True)
        for path in files
        if path.stat().st_size
    }


@pytest.mark.parametrize("name", ["mariadb", "postgresql"])
def test_a_log_moves_to_the_other_place_and_back_and_no_block_of_the_table_moves(
    name: str, lab: LabContext
) -> None:
    kind = engine(name)
    try:
        kind.installed()
        kind.program(kind.needed[0])
    except MissingTool as missing:
        pytest.skip(str(missing))
    beside = DatabaseWork(engine=name, test="insert-small", rows=ROWS, changed=20, separate_log=False)  # type: ignore[call-arg, arg-type]
    apart = msgspec.structs.replace(beside, separate_log=True)
    folder = f"{lab.own}/{name}-{ROWS}"
    places: list[dict[str, str]] = []
    for work in (beside, apart, apart, beside):
        work.provide(lab)
        places.append(blocks_of(Path(lab.root)))
        [started] = work.started_servers(lab)
        server.start(lab.target, started, lab.user)
        try:
            # a row is inserted and deleted, which writes to the log
            more = rows.insert_sql(ROWS + 1, ROWS + 1, at_once=True)
            assert kind.ask(work, lab, folder, more + COUNT) == f"{ROWS + 1}\n"
            kind.ask(work, lab, folder, kind.deletion(work))
        finally:
            server.stop(lab.target, started)
        beside_ns, apart_ns = newest(Path(folder) / "log"), newest(Path(str(lab.log)))
        assert (apart_ns > beside_ns) is work.separate_log
    assert places[0] == places[1] == places[2] == places[3]


def newest(folder: Path) -> int:
    """Return when a file in a folder was last written, in nanoseconds; 0 if there is none."""
    return max((path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()), default=0)
