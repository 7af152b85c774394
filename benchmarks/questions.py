"""Questions, most of them asked in public, each answered by one line of `iotrial try` and by a plain loop.

    python benchmarks/questions.py                # as root, half an hour, alone on the machine; prints the log in Markdown
    python benchmarks/questions.py atime zstd     # only these
    python benchmarks/questions.py --write benchmarks/questions.md

Everything happens on an ext4 file system of its own on a loop device. The plain loop sets the setting with the usual tool
(`mount -o remount`, `sysctl`, `echo`), drops all caches where the question is about cold files, and takes the time of the
command, in pairs in random order; none of it is iotrial's code.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PAIRS = 12
SYSCTLS = ("dirty_ratio", "dirty_bytes", "swappiness", "vfs_cache_pressure")
SYSFS = "/sys/block/$DEV/queue"


@dataclass(frozen=True, slots=True)
class Question:
    """``asked`` at ``source``; ``options`` of `iotrial try` before the command.

    ``by_hand`` are two lines of sh that set the two levels, with $DIR and $DEV; ``commands`` are the lines that are timed
    then, one for both levels or one each.
    """

    name: str
    asked: str
    source: str
    options: str
    command: str
    by_hand: tuple[str, str]
    commands: tuple[str, ...]
    cold: bool = False


def remount(option: str) -> str:
    """The line that remounts the folder with ``option``."""
    return f"mount -o remount,{option} $DIR"


FIO = (
    "fio --name=r --filename=big.bin --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=32 "
    "--size=128M --io_size=16M"
)
QUESTIONS = (
    Question(
        "atime",
        "Does noatime make grep in a source tree faster than relatime?",
        "tuxmachines.org/node/18848",
        "mount.atime=relatime,noatime",
        "grep -r needle src",
        (remount("relatime"), remount("noatime")),
        ("grep -r needle src",),
    ),
    Question(
        "tar",
        "Does a large read-ahead help when many small files are backed up?",
        "news.ycombinator.com/item?id=46865167",
        "block.read_ahead_kb=128,2048 --cache cold",
        "tar cf - src",
        (f"echo 128 > {SYSFS}/read_ahead_kb", f"echo 2048 > {SYSFS}/read_ahead_kb"),
        ("tar cf - src",),
        cold=True,
    ),
    Question(
        "md5sum",
        "Does a large read-ahead help when one large file is read?",
        "serverfault.com, blockdev --setra",
        "block.read_ahead_kb=16,1024 --cache cold",
        "md5sum big.bin",
        (f"echo 16 > {SYSFS}/read_ahead_kb", f"echo 1024 > {SYSFS}/read_ahead_kb"),
        ("md5sum big.bin",),
        cold=True,
    ),
    Question(
        "inodes",
        "Kernel commit 240799cd: reading the inode table ahead makes a cold git status 21 % faster.",
        "Documentation/filesystems/proc.txt, 2008",
        "mount.option=inode_readahead_blks=1,inode_readahead_blks=32 --cache cold-system",
        "git -C repo status",
        (remount("inode_readahead_blks=1"), remount("inode_readahead_blks=32")),
        ("git -C repo status",),
        cold=True,
    ),
    Question(
        "scheduler",
        "none or mq-deadline for random reads by AIO?",
        "kernel documentation, Switching Scheduler",
        "block.scheduler=none,mq-deadline",
        FIO,
        (f"echo none > {SYSFS}/scheduler", f"echo mq-deadline > {SYSFS}/scheduler"),
        (FIO,),
    ),
    Question(
        "sqlite",
        "How much does synchronous=NORMAL save in WAL mode?",
        "sqlite.org/pragma.html",
        "-L sync full,normal",
        "sh commits.sh {sync}",
        ("true", "true"),
        ("sh commits.sh full", "sh commits.sh normal"),
    ),
    Question(
        "zstd",
        "Does zstd -T0 compress faster than one thread?",
        "blog.servarat.net/zstd-vs-tar-gz-full-comparison",
        "-L threads 1,0",
        "zstd -q -T{threads} -c big.bin",
        ("true", "true"),
        ("zstd -q -T1 -c big.bin", "zstd -q -T0 -c big.bin"),
    ),
    Question(
        "dirty",
        "Do small vm.dirty_bytes make a copy with sync faster?",
        "serverfault.com/a/995658",
        "vm.dirty_bytes=today,50331648",
        "sh -c 'cp big.bin copy.bin; sync -f copy.bin'",
        (
            "sysctl -qw vm.dirty_ratio=20",
            "sysctl -qw vm.dirty_bytes=50331648",
        ),
        ("cp big.bin copy.bin; sync -f copy.bin",),
    ),
    Question(
        "barrier",
        "serverfault 486677: SQLite is 10 to 15 times slower than on a laptop; does barrier=0 help?",
        "serverfault.com/questions/486677",
        "mount.option=barrier,nobarrier --copy-from . --size 2GiB",
        "sh commits.sh full",
        (remount("barrier=1"), remount("barrier=0")),
        ("sh commits.sh full",),
    ),
    Question(
        "commit",
        "Does commit=60 make saving a small file faster?",
        "thegeekdiary.com, mount options to improve ext4",
        "mount.option=commit=5,commit=60",
        "sh -c 'echo x >> note.txt'",
        (remount("commit=5"), remount("commit=60")),
        ("echo x >> note.txt",),
    ),
    Question(
        "requests",
        "Does a longer queue (nr_requests) halve the time of dd?",
        "geekdaxue.co/read/neethan@qaqf54/zxn7pp",
        "block.nr_requests=32,128",
        "dd if=/dev/zero of=test bs=1M count=64 conv=fsync",
        (f"echo 32 > {SYSFS}/nr_requests", f"echo 128 > {SYSFS}/nr_requests"),
        ("dd if=/dev/zero of=test bs=1M count=64 conv=fsync",),
    ),
    Question(
        "locale",
        "Does LC_ALL=C make grep in a large ASCII file faster than UTF-8?",
        "inmotionhosting.com/support/website/speed-up-grep-searches-with-lc-all",
        "-L locale C.UTF-8,C",
        "sh -c 'LC_ALL={locale} grep -ci n[ae]edle big.bin || true'",
        ("true", "true"),
        tuple(f"LC_ALL={one} grep -ci n[ae]edle big.bin || true" for one in ("C.UTF-8", "C")),
    ),
    Question(
        "bs",
        "Does bs really improve the speed of dd?",
        "serveraide.com/does-the-bs-option-in-dd-really-improve-the-speed-507",
        "-L bs 512,1M",
        "dd if=big.bin of=/dev/null bs={bs}",
        ("true", "true"),
        ("dd if=big.bin of=/dev/null bs=512", "dd if=big.bin of=/dev/null bs=1M"),
    ),
    Question(
        "wal",
        "Is WAL faster than a rollback journal for single inserts into SQLite?",
        "sqlprostudio.com/blog/50-how-to-improve-sqlite-insert-performance",
        "-L mode delete,wal",
        "sh inserts.sh {mode}",
        ("true", "true"),
        ("sh inserts.sh delete", "sh inserts.sh wal"),
    ),
    Question(
        "swappiness",
        "Should vm.swappiness be 10?",
        "askubuntu.com/questions/184217",
        "vm.swappiness=60,10",
        "md5sum big.bin",
        ("sysctl -qw vm.swappiness=60", "sysctl -qw vm.swappiness=10"),
        ("md5sum big.bin",),
    ),
    Question(
        "sparse",
        "Does cp take longer if it looks for holes?",
        "our own",
        "-L sparse never,always",
        "cp --sparse={sparse} big.bin {out}/copy",
        ("rm -f copy", "rm -f copy"),
        ("cp --sparse=never big.bin copy", "cp --sparse=always big.bin copy"),
    ),
    Question(
        "jobs",
        "Do two processes read a cold tree faster than one?",
        "our own",
        "-L jobs 1,2 --cache cold",
        "sh -c 'find src -type f -print0 | xargs -0 -n 100 -P {jobs} md5sum'",
        ("true", "true"),
        tuple(f"find src -type f -print0 | xargs -0 -n 100 -P {jobs} md5sum" for jobs in (1, 2)),
        cold=True,
    ),
    Question(
        "copy",
        "Is a pipe of two tars faster than cp -a?",
        "our own",
        "--command 'tar cf - src | tar xf - -C {out}'",
        "cp -a src {out}",
        ("rm -rf to; mkdir to", "rm -rf to; mkdir to"),
        ("cp -a src to", "tar cf - src | tar xf - -C to"),
    ),
    Question(
        "dsync",
        "What does a sync of every block cost, against one at the end?",
        "our own",
        "-L how conv=fdatasync,oflag=dsync",
        "dd if=/dev/zero of={out}/file bs=256k count=64 {how}",
        ("rm -f file", "rm -f file"),
        tuple(f"dd if=/dev/zero of=file bs=256k count=64 {how}" for how in ("conv=fdatasync", "oflag=dsync")),
    ),
    Question(
        "pressure",
        "Does vfs_cache_pressure=50 make git status faster?",
        "our own",
        "vm.vfs_cache_pressure=100,50",
        "git -C repo status",
        ("sysctl -qw vm.vfs_cache_pressure=100", "sysctl -qw vm.vfs_cache_pressure=50"),
        ("git -C repo status",),
    ),
)


def main() -> None:
    """Ask all questions both ways, and print the log."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="only these questions")
    parser.add_argument("--write", type=Path, help="also write the log to this file")
    given = parser.parse_args()
    asked = [q for q in QUESTIONS if not given.names or q.name in given.names]
    parts = [head()]
    with laboratory() as place:
        for question in asked:
            parts.append(section(question, *both(question, place)))
            print(parts[-1], file=sys.stderr, flush=True)
    text = "\n".join(parts)
    print(text)
    if given.write:
        given.write.write_text(text)


@contextmanager
def laboratory() -> Iterator[tuple[Path, str]]:
    """A folder on an ext4 file system with the works' files, and the name of its loop device; gone at the end."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        image, folder = Path(name, "image"), Path(name, "files")
        folder.mkdir()
        os.environ["XDG_STATE_HOME"] = str(Path(name, "state"))
        with image.open("wb") as file:
            file.truncate(3 << 30)
        sh("mkfs.ext4 -q image", Path(name))
        device = sh("losetup --find --show image", Path(name)).strip()
        try:
            sh(f"mount {device} {folder}", Path(name))
            before = {name: Path("/proc/sys/vm", name).read_text() for name in SYSCTLS}
            try:
                fill(folder)
                yield folder, device.rpartition("/")[2]
            finally:
                for name, value in before.items():
                    if value.strip() != "0":  # the other of the pair becomes 0 by itself
                        Path("/proc/sys/vm", name).write_text(value)
                sh(f"umount {folder}", Path("/"))
        finally:
            sh(f"losetup --detach {device}", Path("/"))


def fill(folder: Path) -> None:
    """A source tree, a large file, a git repository and a database."""
    draw = random.Random(1)
    words = [bytes(draw.choices(b"abcdefghijklmnopqrstuvwxyz", k=draw.randrange(3, 10))) for _ in range(3000)]
    for n in range(4000):
        file = folder / "src" / f"{n % 40}" / f"{n}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b" ".join([*draw.choices(words, k=1200), *([b"needle"] if n % 100 == 0 else [])]))
    with (folder / "big.bin").open("wb") as big:
        for _ in range(128):
            big.write(b" ".join(draw.choices(words, k=160_000))[: 1 << 20])
    for n in range(10_000):
        file = folder / "repo" / f"{n % 100}" / f"{n}.c"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b" ".join(draw.choices(words, k=30)))
    sh("git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm all", folder / "repo")
    sh("sqlite3 data.db 'pragma journal_mode=wal; create table t (a, b);'", folder)
    inserts = "".join(f"insert into t values ({n}, 'x');\n" for n in range(20))
    (folder / "commits.sh").write_text(f"sqlite3 data.db <<END\npragma synchronous=$1;\n{inserts}END\n")
    for mode in ("delete", "wal"):
        sh(f"sqlite3 {mode}.db 'pragma journal_mode={mode}; create table t (a, b);'", folder)
    (folder / "inserts.sh").write_text(f"sqlite3 $1.db <<END\n{inserts}END\n")
    sh("sync", folder)


def both(question: Question, place: tuple[Path, str]) -> tuple[str, list[tuple[float, float]]]:
    """What `iotrial try` printed, and the seconds of each pair of the plain loop."""
    folder, device = place
    line = ["iotrial", "try", *shlex.split(question.options), "--yes", "--time", "60s", "--"]
    done = subprocess.run(
        [sys.executable, "-m", "iotrial", *line[1:], *shlex.split(question.command)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "100"},
    )
    said = done.stdout + (f"(exit status {done.returncode})\n" if done.returncode else "")
    return said, [pair(question, folder, device) for _ in range(PAIRS)]


def pair(question: Question, folder: Path, device: str) -> tuple[float, float]:
    """Seconds with the first and with the second level, taken in random order."""
    taken = [0.0, 0.0]
    for level in random.sample((0, 1), 2):
        sh(question.by_hand[level], folder, DIR=str(folder), DEV=device)
        if question.cold:
            sh("sync; echo 3 > /proc/sys/vm/drop_caches", folder)
        started = time.monotonic()
        timed = ["sh", "-c", question.commands[min(level, len(question.commands) - 1)]]
        subprocess.run(timed, cwd=folder, stdout=subprocess.PIPE, check=True)
        taken[level] = time.monotonic() - started
    return taken[0], taken[1]


def sh(line: str, folder: Path, **variables: str) -> str:
    """What the line prints; CalledProcessError if it fails."""
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        check=True,
    ).stdout


def head() -> str:
    """The title, the machine and the versions."""
    model = next(
        x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")
    ).partition(": ")[2]
    return f"""# Questions, each answered by one line

Asked by `iotrial try` and by a plain loop of {PAIRS} pairs in random order ([questions.py](questions.py)); ext4 on a loop
device, {os.cpu_count()} x {model}, Linux {platform.release()}, {datetime.now(UTC):%Y-%m-%d}. One trial each; what it
printed is not edited.
"""


def section(question: Question, said: str, pairs: list[tuple[float, float]]) -> str:
    """One question with both answers."""
    ratios = sorted(b / a for a, b in pairs)
    first, second = (statistics.median(x) * 1e3 for x in zip(*pairs, strict=True))
    loop = f"{statistics.median(ratios):.2f} ({ratios[len(ratios) // 4]:.2f} to {ratios[-1 - len(ratios) // 4]:.2f})"
    return f"""## {question.asked}

Source: {question.source}

```console
$ iotrial try {question.options} --yes --time 60s -- {question.command}
{said.rstrip()}
```

Plain loop: medians {first:.0f} and {second:.0f} ms; ratio of a pair, median and quartiles: {loop}.
"""


if __name__ == "__main__":
    main()
