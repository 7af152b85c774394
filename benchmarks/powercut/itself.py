"""iotrial under its own power cuts: its store, undo journal, records of `apply`, `restore` and `revert`.

    python benchmarks/powercut/itself.py [--drawn N] [--seed N] [--filesystem NAME] [--sector-bytes N]
        [trials | live | settings]

Everything that iotrial keeps is on a disk that logs; what it acknowledges is marked at the moment a call returns. After
each cut the disk is recovered, the machine has another boot id, and `iotrial restore` or `revert` runs on it. Then:

- no acknowledged run, trial, block or state is missing or different, at most the one in progress is there as well, and every
  trial can be read;
- the journal holds every entry that was acknowledged, none is damaged, and after `restore` neither an entry nor a folder
  of the lab is left; of settings that the boot has reset `restore` says so, and changes none;
- after `revert` every file of the machine is as it was; what was kept still stands before that.

Prints a Markdown table. As root.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from laboratory import SEED, SIZES, lab, tried

from truth import HEAD, row

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tests" / "unit")]

import machine_trees  # noqa: E402
import test_applied  # noqa: E402

from iotrial import cli  # noqa: E402
from iotrial.cli.finish import EXIT_NO_ANSWER  # noqa: E402
from iotrial.cli.verbs.restore import command as restore_verb  # noqa: E402
from iotrial.errors import IotrialError  # noqa: E402
from iotrial.lab.journal import Journal  # noqa: E402
from iotrial.lab.target import Target  # noqa: E402
from iotrial.powercut.mounts import bind, mount, sync_filesystem  # noqa: E402
from iotrial.powercut.record import Marker  # noqa: E402
from iotrial.powercut.recover import Findings  # noqa: E402
from iotrial.powercut.states import Cache  # noqa: E402
from iotrial.store import records  # noqa: E402
from iotrial.store.database import Store  # noqa: E402
from iotrial.store.model import RunRecord  # noqa: E402
from iotrial.tune.applied import Records  # noqa: E402

#: of the disk: a lab wants 256 MiB left free
SIZE = 640 << 20
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
STUDY = """
[study]
name = "cut"
question = "Does the mode matter?"
[budget]
time = "120 s"
blocks = BLOCKS
[[factor]]
name = "mode"
knob = "file.mode"
levels = ["0777", "0444"]
[[workload]]
name = "read"
kind = "files"
files = 5
cache = "as-is"
operations = ["open", "read-to-end", "close"]
"""


# -- trials, and the undo journal


class Trials:
    """Work: a trial in a folder of the state folder that is killed, restored and resumed, and one in place that turns a
    setting of the disk itself."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks

    def __call__(self, root: Path, marker: Marker) -> None:
        study = root / "cut.toml"
        study.write_text(STUDY.replace("BLOCKS", str(self.blocks)))
        (root / "data").mkdir()
        (root / "data" / "file").write_bytes(b"x" * 65536)
        in_place = ("try", "block.read_ahead_kb=128,256", "--in", str(root / "data"), "--yes")
        with _acknowledging(marker):
            _run(root, "run", str(study), "--lab", "directory", "--no-account", killed_after=self.blocks + 1)
            _run(root, "restore")
            _run(root, "resume", "last")
            _run(
                root,
                *in_place,
                "--blocks",
                str(max(2, self.blocks // 8)),
                "--",
                "cat",
                "file",
                cwd=root / "data",
            )


class Live:
    """Work: a trial in use that is killed, taken back by its watchdog, and resumed."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks

    def __call__(self, root: Path, marker: Marker) -> None:
        (root / "data").mkdir()
        words = (
            "live", "block.read_ahead_kb=128,256", "--metric", "psi:io", "--in", str(root / "data"), "--window", "600ms",
            "--washout", "200ms", "--yes", "--no-stop", "--blocks", str(self.blocks),
        )  # fmt: skip
        with _acknowledging(marker):
            _run(root, *words, killed_after=self.blocks)
            _watchdog_ends(root)
            marker.mark("taken back")
            _run(root, "resume", "last")


def _watchdog_ends(root: Path) -> None:
    """Wait for the watchdog of a killed trial."""
    late = time.monotonic() + 60
    state = f"XDG_STATE_HOME={root / 'state'}".encode()
    while any(state in text for text in _watchdogs()):
        if time.monotonic() > late:
            raise RuntimeError("the watchdog of a killed trial does not end")
        time.sleep(0.1)


def _watchdogs() -> Iterator[bytes]:
    """Yield the environments of all watchdogs."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"iotrial.live.watchdog" in (process / "cmdline").read_bytes():
                yield (process / "environ").read_bytes() + (process / "cmdline").read_bytes()


def _run(root: Path, *words: str, cwd: Path | None = None, killed_after: int = 0) -> None:
    """Run the program in a fork of this process, with its state on ``root``; it may be killed after a number of runs."""
    pid = os.fork()
    if pid == 0:
        status = 1
        _left[0] = killed_after
        try:
            mount("tmpfs", Path("/run"), "tmpfs")
            os.environ["XDG_STATE_HOME"] = str(root / "state")
            os.chdir(cwd or "/")
            output = os.open("/dev/null", os.O_RDWR)
            said = os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR, 0o600)
            for number, descriptor in enumerate((output, output, said)):
                os.dup2(descriptor, number)
            sys.argv = ["iotrial", *words]
            cli.main()
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
        finally:
            if status:
                os.write(said, b"\n")
                text = os.pread(said, 4000, 0).decode(errors="replace")
                Path("/dev/shm/iotrial-cut-said").write_text(text)
            os._exit(status)
    _, ended_with = os.waitpid(pid, 0)
    no_answer = os.waitstatus_to_exitcode(ended_with) == EXIT_NO_ANSWER  # after as few blocks as these have
    if ended_with and not no_answer and not (killed_after and os.WIFSIGNALED(ended_with)):
        text = Path("/dev/shm/iotrial-cut-said")
        said_text = text.read_text() if text.exists() else ""
        text.unlink(missing_ok=True)
        raise RuntimeError(
            f"iotrial {words[0]} ended with {os.waitstatus_to_exitcode(ended_with)}: {said_text}"
        )


#: runs left until this process is killed
_left = [0]


@contextmanager
def _acknowledging(marker: Marker) -> Iterator[None]:
    """Mark what the store and the journal have made durable, right after their calls return."""
    place = marker.path

    def wrap(
        owner: type, name: str, text: Callable[..., str], before: Callable[..., str] | None = None
    ) -> Callable[[], None]:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def call(self: Any, *args: Any, **more: Any) -> Any:
            with Marker(place) as own:
                if before is not None:
                    own.mark(before(*args))
                result = inner(self, *args, **more)
                own.mark(text(result, *args))
            if name == "append_run":
                _left[0] -= 1
                if _left[0] == 0:
                    with Marker(place) as own:
                        own.mark("killed")
                    os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(owner, name, call)
        return functools.partial(setattr, owner, name, inner)

    undo = [
        wrap(Store, "create_trial", lambda _, header: f"trial {header.id}"),
        wrap(Store, "append_run", lambda _, trial, run: _run_mark(trial, run)),
        wrap(Store, "end_block", lambda _, trial, end: f"block {trial} {_short(end.condition)} {end.block}"),
        # a resume adds another "running", which says nothing
        wrap(
            Store,
            "set_state",
            lambda _, trial, state, *_more: f"{'going' if state == 'running' else 'state'} {trial} {state}",
        ),
        wrap(Journal, "_write", lambda _, entry: f"entry {entry.number}"),
        wrap(
            Journal,
            "drop",
            lambda _, entry: f"dropped {entry.number}",
            lambda entry: f"dropping {entry.number}",
        ),
    ]
    try:
        yield
    finally:
        for each in undo:
            each()


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _run_mark(trial: str, run: RunRecord) -> str:
    return f"run {trial} {_short(run.condition)} {run.block} {run.slot} {_short(repr(records.run_row(run)))}"


def check_trials(root: Path, acknowledged: Sequence[str], *, watched: bool = False) -> Findings:
    """Check journal and store after a cut, and restore. ``watched``: once killed, a watchdog empties the journal."""
    state = root / "state" / "iotrial"
    lost: list[str] = []
    corrupt: list[str] = []
    _check_journal(state, acknowledged, lost, corrupt, watched=watched)
    _restore(root, state, corrupt)
    _check_store(state, acknowledged, lost, corrupt)
    return Findings(tuple(lost), tuple(corrupt))


def _check_journal(
    state: Path, acknowledged: Sequence[str], lost: list[str], corrupt: list[str], *, watched: bool
) -> None:
    entries, damaged = Journal(state / "journal").read()
    corrupt += [f"journal: {each}" for each in damaged]
    standing: set[int] = set()
    going: int | None = None
    for text in acknowledged:
        word, _, number = text.partition(" ")
        if word == "entry":
            standing.add(int(number))
        elif word == "dropping":
            going = int(number)
        elif word == "dropped":
            standing.discard(int(number))
            going = None
        elif text == "killed" and watched:
            standing.clear()
    found = {entry.number for entry in entries}
    lost += [f"journal: entry {number} is gone" for number in sorted(standing - found - {going})]


def _restore(root: Path, state: Path, corrupt: list[str]) -> None:
    _another_boot()
    os.environ["XDG_STATE_HOME"] = str(state.parent)
    entries, _ = Journal(state / "journal").read()
    queues, said = _queues(), io.StringIO()
    try:
        with (
            Path(os.devnull).open("w") as sink,
            redirect_stdout(said),
            redirect_stderr(sink),
            mock.patch.object(Target, "write", autospec=True, side_effect=Target.write) as written,
        ):
            restore_verb.main(args=["--json"], standalone_mode=False)
        found = {row["number"]: row["outcome"] for row in json.loads(said.getvalue())["restored"]}
        corrupt += [
            f"restore: {entry} is {found.get(entry.number)}, not gone with the boot"
            for entry in entries
            if entry.knob.startswith("block.") and found.get(entry.number) != "already gone"
        ]
    except IotrialError as error:
        corrupt.append(f"restore: {error.message}")
    if written.called and _queues() != queues:  # other programs change the queues of their disks
        corrupt.append("restore changed the queue of a disk after the boot")
    left = [*root.rglob("iotrial-lab-*"), *root.rglob("*.entry"), *root.rglob("journal.open")]
    corrupt += [f"after restore: {path.relative_to(root)} is left" for path in left]


def _queues() -> dict[Path, str]:
    """Return the setting on trial of every disk."""
    return {path: path.read_text() for path in Path("/sys/block").glob("*/queue/read_ahead_kb")}


@functools.cache
def _another_boot() -> None:
    """Give this process, which has its own mounts, another boot id, and a /run of its own."""
    mount("tmpfs", Path("/run"), "tmpfs")
    fake = Path("/run/boot_id")
    fake.write_text("11111111-2222-3333-4444-555555555555\n")
    bind(fake, BOOT_ID)


def _check_store(state: Path, acknowledged: Sequence[str], lost: list[str], corrupt: list[str]) -> None:
    marks = [text for text in acknowledged if text.split(" ", 1)[0] in ("trial", "run", "block", "state")]
    path = state / "trials.db"
    if not path.exists():
        lost += marks[:1] and [f"the store is gone, with {len(marks)} acknowledgements"]
        return
    try:
        with Store.open(path) as store:
            found = _marks_of(store, corrupt)
    except IotrialError as error:
        corrupt.append(f"store: {error.message}")
        return
    missing = set(marks) - found
    lost += [f"store: {text}" for text in sorted(missing)]
    more = found - set(marks)
    if len(more) > 2:  # what was in progress: a trial is created with its first state
        corrupt.append(f"store: {len(more)} things that had not been acknowledged: {sorted(more)[:3]}")


def _marks_of(store: Store, corrupt: list[str]) -> set[str]:
    """Return the marks that stand for what a store holds."""
    corrupt += [f"store: {warning}" for warning in store.warnings]
    trials, damaged = store.listing()
    corrupt += [f"store: trial {each.number}: {each.problem}" for each in damaged]
    found: set[str] = set()
    for trial in trials:
        name = trial.header.id
        found.add(f"trial {name}")
        data = store.data(trial.number)
        if str(trial.state) != "running":
            found.add(f"state {name} {trial.state}")
        found.update(_run_mark(name, run) for run in data.runs)
        for block in data.blocks:
            found.add(f"block {name} {_short(block.condition)} {block.index}")
    return found


# -- settings that are kept


class Settings:
    """Work: settings are applied, kept or not, and taken back, on files that look like a machine."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def __call__(self, root: Path, marker: Marker) -> None:
        folder = root / "machine"
        folder.mkdir()
        machine_trees.tree(folder)
        sync_filesystem(root)
        marker.mark("ready")
        for number in range(self.rounds):
            machine = machine_trees.FakeMachine(folder)
            marker.mark(f"applying {number}")
            record = test_applied.applied(machine)
            marker.mark(f"applied {number}")
            if number % 2:
                marker.mark(f"keeping {number}")
                test_applied.kept(machine, record)
                marker.mark(f"kept {number}")
            marker.mark(f"reverting {number}")
            test_applied.reverted(machine)
            marker.mark(f"reverted {number}")


@functools.cache
def _fresh() -> tuple[Path, dict[str, object]]:
    """Return a machine as at its boot, and what its files held before anything was applied."""
    folder = Path(tempfile.mkdtemp(dir="/run"))
    machine_trees.tree(folder)
    (folder / BOOT_ID.relative_to("/")).write_text("boot-2")
    return folder, _files(folder)


def _files(folder: Path) -> dict[str, object]:
    """Return the machine's files on disk: those of the kernel and of /run are made by each boot."""
    found = machine_trees.image(folder)
    return {
        name: what for name, what in found.items() if name.partition("/")[0] not in ("proc", "sys", "run")
    }


def check_settings(root: Path, acknowledged: Sequence[str]) -> Findings:
    """Boot the machine, take back what is due, then all."""
    if "ready" not in acknowledged:
        return Findings()
    _another_boot()
    lost: list[str] = []
    corrupt: list[str] = []
    folder = root / "machine"
    fresh, before = _fresh()
    last = acknowledged[-1].partition(" ")[0]
    if last in ("ready", "reverted") and _files(folder) != before:
        lost.append(f"files differ after {acknowledged[-1]}: {_differences(_files(folder), before)}")
    for name in ("proc", "sys", "run"):
        shutil.rmtree(folder / name)
        shutil.copytree(fresh / name, folder / name, symlinks=True)
    machine = machine_trees.FakeMachine(folder)
    records_there = Records(machine)
    try:
        found = [one for one in records_there.all() if one.in_force]
        if last in ("applied", "keeping", "kept") and not found:
            lost.append(f"no record after {acknowledged[-1]}")
        for one in found:
            if one.is_due(machine):
                test_applied.revert(records_there, one, why="boot")
        if last == "kept":
            standing = machine.read("/etc/sysctl.d/99-zz-iotrial-01234567.conf")
            if not standing:
                lost.append("what was kept is gone after the boot")
        problems = [problem for one in test_applied.reverted(machine) for problem in one.problems]
    except IotrialError as error:
        problems = [error.message]
    corrupt += [f"revert: {problem}" for problem in problems]
    if _files(folder) != before:
        corrupt.append(f"files differ after revert: {_differences(_files(folder), before)}")
    return Findings(tuple(lost), tuple(corrupt))


def _differences(found: dict[str, object], before: dict[str, object]) -> list[str]:
    return sorted(name for name in found.keys() | before.keys() if found.get(name) != before.get(name))[:5]


check_live = functools.partial(check_trials, watched=True)

PARTS: dict[str, tuple[Callable[[int], Any], int, Any]] = {
    "trials": (Trials, 40, check_trials),
    "live": (Live, 12, check_live),
    "settings": (Settings, 6, check_settings),
}


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--drawn", type=int, default=10_000)
    parser.add_argument("--filesystem", choices=sorted(SIZES), action="append")
    parser.add_argument(
        "--sector-bytes", type=int, default=512, help="what the disk writes as a whole or not at all"
    )
    parser.add_argument("--seed", type=int, default=int(SEED, 16), help="of the drawn states")
    parser.add_argument("--length", type=int, default=0, help="blocks of the trials, rounds of the settings")
    parser.add_argument("part", nargs="?", choices=sorted(PARTS))
    given = parser.parse_args()
    print(HEAD)
    for part in [given.part] if given.part else PARTS:
        work, length, check = PARTS[part]
        for filesystem in given.filesystem or sorted(SIZES):
            with lab() as target, tempfile.TemporaryDirectory(prefix="iotrial-cut-") as at:
                tally = tried(
                    target, filesystem, work(given.length or length), check, drawn=given.drawn, fsck_every=500,
                    size_bytes=SIZE, at=Path(at), cache=Cache(sector_bytes=given.sector_bytes),
                    seed=f"{given.seed:032x}",
                )  # fmt: skip
            print(row(filesystem, f"{part}, sectors of {given.sector_bytes}", tally), flush=True)
            for verdict, example in tally.examples.items():
                print(f"<!-- {verdict}: {example} -->", flush=True)


if __name__ == "__main__":
    main()
