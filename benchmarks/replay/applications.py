"""Applications for the benchmarks of replays: each prepares a folder, and does the same work in every copy of it."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PYTHON = "/usr/bin/python3"
_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")


@dataclass(frozen=True, slots=True)
class Application:
    """``argv`` runs in a copy of the folder that ``prepare`` has filled. ``needs`` are its programs."""

    name: str
    argv: tuple[str, ...]
    prepare: Callable[[Path], None]
    needs: tuple[str, ...]

    @property
    def available(self) -> bool:
        """Whether all its programs are installed."""
        return all(shutil.which(program) is not None for program in self.needs)


def _sqlite(folder: Path) -> None:
    """Make a table of 20,000 rows, and 20 transactions that look up rows and change some."""
    drawn = random.Random(1)
    rows = "\n".join(
        f"INSERT INTO rows VALUES ({number}, '{drawn.randbytes(100).hex()}');" for number in range(20_000)
    )
    subprocess.run(
        ["sqlite3", "app.db"],
        input=f"CREATE TABLE rows (id INTEGER PRIMARY KEY, data TEXT);\nBEGIN;\n{rows}\nCOMMIT;\n",
        text=True,
        check=True,
        cwd=folder,
    )
    work = []
    for _ in range(20):
        work.append("BEGIN;")
        for _ in range(5):
            number = drawn.randrange(20_000)
            work.append(f"SELECT length(data) FROM rows WHERE id = {drawn.randrange(20_000)};")
            work.append(f"UPDATE rows SET data = '{drawn.randbytes(100).hex()}' WHERE id = {number};")
        work.append("COMMIT;")
    (folder / "work.sql").write_text("\n".join(work) + "\n")


def _mariadb(folder: Path) -> None:
    """Make a data folder, and 20 transactions. Bootstrap mode runs them in one process, without a network."""
    subprocess.run(
        ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={folder}/data", "--skip-test-db",
         "--innodb-log-file-size=8M", "--auth-root-authentication-method=normal"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    drawn = random.Random(2)
    work = [
        "CREATE DATABASE app;",
        "USE app;",
        "CREATE TABLE entries (id INT PRIMARY KEY, data VARCHAR(200));",
    ]
    for number in range(20):
        values = ", ".join(f"({20 * number + row}, '{drawn.randbytes(90).hex()}')" for row in range(20))
        work.append(f"INSERT INTO entries VALUES {values};")
    (folder / "work.sql").write_text("\n".join(work) + "\n")


def _git(folder: Path) -> None:
    """Make a repository of 800 files with two branches that differ in a third of them."""
    drawn = random.Random(3)
    for number in range(800):
        path = folder / f"{_WORDS[number % 8]}" / f"file{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(" ".join(drawn.choices(_WORDS, k=9)) for _ in range(60)))
    run = [
        "git",
        "-c",
        "user.name=iotrial",
        "-c",
        "user.email=iotrial@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["commit", "-q", "-m", "one"],
        ["checkout", "-q", "-b", "other"],
    ):
        subprocess.run([*run, *words], check=True, cwd=folder)
    for number in range(0, 800, 3):
        path = folder / f"{_WORDS[number % 8]}" / f"file{number}.txt"
        path.write_text(path.read_text() + "\nchanged\n")
    for words in (["commit", "-q", "-a", "-m", "two"], ["checkout", "-q", "main"]):
        subprocess.run([*run, *words], check=True, cwd=folder)


def _tar(folder: Path) -> None:
    """Make a tree of 600 files of 1 to 64 KiB."""
    drawn = random.Random(4)
    for number in range(600):
        path = folder / "tree" / f"{number % 20:02}" / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn.randbytes(1 << drawn.randrange(10, 17)))


_KEY_VALUE = """
import dbm.ndbm, os, random
drawn = random.Random(5)
log = os.open("store.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
with dbm.ndbm.open("store", "w") as store:
    for number in range(3000):
        key = b"key%d" % drawn.randrange(20000)
        if drawn.random() < 0.7:
            store.get(key)
        else:
            store[key] = drawn.randbytes(100)
            os.write(log, key)
            if number % 200 == 0:
                os.fsync(log)
os.fsync(log)
"""


def _key_value(folder: Path) -> None:
    """Make a store of 20,000 keys, and a script of 3,000 operations with a log that is synced now and then."""
    (folder / "work.py").write_text(_KEY_VALUE)
    fill = (
        "import dbm.ndbm, random\n"
        "drawn = random.Random(6)\n"
        "with dbm.ndbm.open('store', 'n') as store:\n"
        "    for number in range(20000): store[b'key%d' % number] = drawn.randbytes(100)\n"
    )
    subprocess.run([PYTHON, "-c", fill], check=True, cwd=folder)


APPLICATIONS = (
    Application("sqlite", ("sh", "-c", "sqlite3 app.db < work.sql > /dev/null"), _sqlite, ("sqlite3",)),
    Application(
        "mariadb",
        (
            "sh",
            "-c",
            "mariadbd --no-defaults --bootstrap --user=root --datadir=$PWD/data --innodb-log-file-size=8M "
            "--innodb-buffer-pool-size=16M --innodb-use-native-aio=0 < work.sql 2> /dev/null",
        ),
        _mariadb,
        ("mariadbd", "mariadb-install-db"),
    ),
    Application(
        "git",
        (
            "sh",
            "-c",
            "git status --porcelain > /dev/null && git checkout -q other",
        ),
        _git,
        ("git",),
    ),
    Application("tar", ("sh", "-c", "tar cf archive.tar tree && sync archive.tar"), _tar, ("tar",)),
    Application("key-value", (PYTHON, "work.py"), _key_value, (PYTHON,)),
)
