"""Time from the start of `iotrial run` to the first measured run of a trial in a guest.

    python benchmarks/guests.py [REPETITIONS [WORDS]]      # only guests with WORDS in their description

In each pair of trials the first boots the guest and the second resumes it from a memory snapshot; kernel, tools and
initramfs are cached for both.
The clock stops when the first run appears in the store, so it includes that run itself and up to 10 ms of polling.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOKS_EVERY_S = 0.01
STUDIES = {
    "files on one virtio disk": ("64 MiB", 1, ""),
    "files by NFS from another guest": ("64 MiB", 1, "[lab.link]\n"),
    "files on raid5 of four virtio disks": ("64 MiB", 4, '[[fixed]]\nknob = "raid.level"\nlevel = "raid5"\n'),
}
STUDY = """
[study]
name = "first-run"
question = "How long does it take to the first run?"
[lab]
kind = "guest"
size = "{size}"
disks = {disks}
{more}
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0777", "0444"]
[[workload]]
name = "read"
kind = "files"
operations = ["open", "read-to-end", "close"]
files = 20
size = "4 KiB"
"""


def main(repetitions: int, words: str = "") -> None:
    """Print a Markdown table."""
    print("| guest | how it comes up | median | from | to | n |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        home = Path(folder)
        for name, (size, disks, more) in STUDIES.items():
            if words not in name:
                continue
            study = home / "first-run.toml"
            study.write_text(STUDY.format(size=size, disks=disks, more=more))
            first_run(home, study)  # fetches what is missing
            booted, resumed = [], []
            for _ in range(repetitions):
                shutil.rmtree(home / "iotrial" / "guest" / "states", ignore_errors=True)
                booted.append(first_run(home, study))
                resumed.append(first_run(home, study))
            for how, seconds in (("booted", booted), ("from a kept memory", resumed)):
                middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
                print(f"| {name} | {how} | {middle:.2f} s | {least:.2f} s | {most:.2f} s | {repetitions} |")


def first_run(home: Path, study: Path) -> float:
    """Return the seconds from the start of the program to the first run in the store."""
    store = home / "iotrial" / "trials.db"
    before = runs_in(store)
    environment = {**os.environ, "XDG_STATE_HOME": str(home)}
    began = time.monotonic()
    trial = subprocess.Popen(
        [sys.executable, "-m", "iotrial", "run", str(study), "--blocks", "1", "--no-account"],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while runs_in(store) == before:
        if trial.poll() is not None:
            raise SystemExit(f"the trial ended with {trial.returncode} before its first run")
        time.sleep(LOOKS_EVERY_S)
    took = time.monotonic() - began
    trial.wait()
    return took


def runs_in(store: Path) -> int:
    """Return the number of runs, 0 without a store."""
    if not store.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM run").fetchone()[0])
    except sqlite3.Error:
        return 0


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7, *sys.argv[2:3])
