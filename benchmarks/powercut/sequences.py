"""Every order of two short file operations and one sync: do this kernel's file systems keep what the sync promised?

    python benchmarks/powercut/sequences.py [--drawn N] [--filesystem NAME] [--options MOUNT_OPTIONS] [--shown N]

After ACE (Mohan et al., "Finding Crash-Consistency Bugs with Bounded Black-Box Crash Testing", OSDI 2018): small works are
enumerated, not drawn. Promised is what fsync(2) and the documentation of Linux file systems say:

- fsync of a file: its content as it was then, under one of the names that it has had since the last sync of its folder;
- fsync of a folder: exactly its names as they were then;
- sync: everything;
- a file that was synced before and is not touched afterwards: as it was.

Prints a Markdown table, and each sequence that deviates.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cases import SYNCED
from laboratory import SIZES, lab, tried

from iotrial.powercut.mounts import sync_filesystem
from iotrial.powercut.record import Marker
from iotrial.powercut.recover import Findings

#: files at the start, synced: name and content
START = {"f": b"f" * 6000, "g": b"g" * 6000, "d/h": b"h" * 6000}
OPERATIONS = (
    "create n", "append f", "overwrite f", "empty f", "rename f g", "rename f n", "rename f d/n", "link f n", "link f d/n",
    "unlink f", "unlink g", "make e", "replace f", "append d/h", "rename d/h f",
)  # fmt: skip
SYNCS = ("fsync f", "fsync n", "fsync d/n", "fsync .", "fsync d", "sync")


@dataclass
class Model:
    """What is there: the file of each name, the content of each file. Names that a file has had since the last sync."""

    names: dict[str, int] = field(default_factory=dict)
    contents: list[bytes] = field(default_factory=list)
    folders: set[str] = field(default_factory=lambda: {".", "d"})
    had: dict[int, set[str]] = field(default_factory=dict)

    @classmethod
    def start(cls) -> Model:
        model = cls()
        for name, content in START.items():
            model.add(name, content)
        return model

    def add(self, name: str, content: bytes) -> None:
        self.contents.append(content)
        self.name(name, len(self.contents) - 1)

    def name(self, name: str, file: int) -> None:
        self.names[name] = file
        self.had.setdefault(file, set()).add(name)

    def do(self, operation: str) -> None:
        """Change the model. Raises KeyError, FileExistsError for what cannot be done."""
        verb, first, *more = operation.split()
        match verb:
            case "create" | "replace" | "link" | "make" if verb in ("create", "link", "make") and (
                (more or [first])[0] in self.names or first in self.folders
            ):
                raise FileExistsError
            case "create":
                self.add(first, b"new " * 1500)
            case "append":
                self.contents[self.names[first]] += b"more " * 1000
            case "overwrite":
                old = self.contents[self.names[first]]
                self.contents[self.names[first]] = b"over " * 1200 + old[6000:]
            case "empty":
                self.contents[self.names[first]] = b""
            case "replace":
                file = self.names[first]
                self.contents.append(b"next " * 1200)
                self.had[len(self.contents) - 1] = {first, f"{first}.new"}
                del file
                self.names[first] = len(self.contents) - 1
            case "rename" if self.names.get(more[0]) == self.names[first]:
                pass  # two names of one file: rename(2) does nothing
            case "rename":
                self.name(more[0], self.names.pop(first))
            case "link":
                self.name(more[0], self.names[first])
            case "unlink":
                del self.names[first]
            case "make":
                self.folders.add(first)

    def promised(self, sync: str) -> list[tuple[str, object]]:
        """Return what must hold after the sync. Raises KeyError if what it syncs is not there."""
        what = sync.partition(" ")[2]
        if sync == "sync":
            return [("exactly", {name: self.contents[file] for name, file in self.names.items()})]
        if what in (".", "d"):
            return [
                (
                    "names",
                    (what, sorted(name for name in self.names if folder_of(name) == what)),
                )
            ]
        file = self.names[what]
        return [("content", (sorted(self.had[file]), self.contents[file]))]

    def untouched(self) -> dict[str, bytes]:
        """Return the files that are as at the start."""
        return {
            name: content
            for name, content in START.items()
            if self.names.get(name) == list(START).index(name) and self.contents[self.names[name]] == content
        }


def act(root: Path, operation: str) -> None:
    """Do an operation on the file system."""
    verb, first, *more = operation.split()
    path = root / first
    match verb:
        case "create":
            path.write_bytes(b"new " * 1500)
        case "append":
            with path.open("ab") as file:
                file.write(b"more " * 1000)
        case "overwrite":
            with path.open("r+b") as file:
                file.write(b"over " * 1200)
        case "empty":
            os.truncate(path, 0)
        case "replace":
            path.with_suffix(".new").write_bytes(b"next " * 1200)
            path.with_suffix(".new").rename(path)
        case "rename":
            path.rename(root / more[0])
        case "link":
            (root / more[0]).hardlink_to(path)
        case "unlink":
            path.unlink()
        case "make":
            path.mkdir()
        case "sync":
            sync_filesystem(root)
        case "fsync":
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


class Sequence3:
    """Two operations and a sync, as work and check of the laboratory."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words, self.model = tuple(words), Model.start()
        for operation in words[:-1]:
            self.model.do(operation)
        self.promises = self.model.promised(words[-1])

    def work(self, root: Path, marker: Marker) -> None:
        (root / "d").mkdir()
        for name, content in START.items():
            (root / name).write_bytes(content)
        sync_filesystem(root)
        for operation in self.words:
            act(root, operation if operation != "sync" else "sync .")
        marker.mark(SYNCED)

    def check(self, root: Path, acknowledged: Sequence[str]) -> Findings:
        if SYNCED not in acknowledged:
            return Findings()
        return Findings(lost=tuple(self.broken(root)))

    def broken(self, root: Path) -> list[str]:
        found = {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file() and "lost+found" not in path.parts
        }
        wrong = [
            f"{name}, untouched, is {short(found.get(name))}"
            for name, content in self.model.untouched().items()
            if found.get(name) != content
        ]
        for kind, what in self.promises:
            match kind:
                case "exactly":
                    wrong += [
                        f"{name} is {short(found.get(name))}"
                        for name in {**what, **found}
                        if found.get(name) != what.get(name)
                    ]
                case "names":
                    folder, names = what
                    there = sorted(name for name in found if folder_of(name) == folder)
                    if there != names:
                        wrong.append(f"{folder} has {there}, not {names}")
                case "content":
                    names, content = what
                    if content not in [found.get(name) for name in names]:
                        wrong.append(
                            f"none of {names} has its content: {[short(found.get(name)) for name in names]}"
                        )
        return wrong


def folder_of(name: str) -> str:
    return str(Path(name).parent)


def short(content: bytes | None) -> str:
    return (
        "missing" if content is None else f"{len(content)} bytes of {content[:1].decode(errors='replace')!r}"
    )


def sequences() -> list[Sequence3]:
    """Return all that can be done."""
    made = []
    for words in itertools.product(OPERATIONS, OPERATIONS, SYNCS):
        try:
            made.append(Sequence3(words))
        except (KeyError, FileExistsError):
            continue
    return made


def main() -> None:
    """Print a row for each file system."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--drawn", type=int, default=12)
    parser.add_argument("--filesystem", choices=sorted(SIZES), action="append")
    parser.add_argument("--options", default="")
    parser.add_argument("--every", type=int, default=1, help="only every Nth sequence")
    given = parser.parse_args()
    print(
        "| file system | options | sequences | states | deviate | seconds |\n| --- | --- | --- | --- | --- | --- |"
    )
    for filesystem in given.filesystem or sorted(SIZES):
        verdicts: Counter[str] = Counter()
        states, seconds, told = 0, 0.0, []
        chosen = sequences()[:: given.every]
        with lab() as target:
            for one in chosen:
                tally = tried(
                    target,
                    filesystem,
                    one.work,
                    one.check,
                    drawn=given.drawn,
                    options=given.options,
                    after=SYNCED,
                )
                states, seconds = states + tally.points, seconds + tally.seconds
                bad = [word for word in tally.verdicts if word != "clean"]
                verdicts.update(bad)
                for word in bad:
                    example = tally.examples.get(word, "")[:300]
                    told.append(
                        f"- {filesystem}: {', '.join(one.words)}: {tally.verdicts[word]} of {tally.points} {word}: {example}"
                    )
        found = ", ".join(f"{word} {count}" for word, count in verdicts.items()) or "none"
        print(
            f"| {filesystem} | {given.options or 'none'} | {len(chosen)} | {states} | {found} | {seconds:.0f} |",
            flush=True,
        )
        print("\n".join(told), flush=True)


if __name__ == "__main__":
    main()
