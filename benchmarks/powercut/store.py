"""A small key-value store that keeps what it acknowledges, and versions of it with one planted mistake each.

    store.py work FOLDER MISTAKE COUNT     put and delete, and print what is acknowledged
    store.py dump FOLDER MISTAKE           recover, and print what is there
    store.py serve FOLDER MISTAKE PORT     recover, then listen

``none`` is the store without a mistake: a log of records with checksums, synced before each acknowledgement.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time
import zlib

#: the mistakes, with the words that `iotrial powercut` has for them
MISTAKES = {
    "log-not-synced": "no sync of the file",
    "file-not-synced": "no sync of the file",
    "old-log-synced": "no sync of the file",
    "log-dropped-before-checkpoint-synced": "no sync of the file",
    "folder-not-synced": "no sync of the folder",
    "delete-not-synced": "no sync of the folder",
    "acknowledged-before-write": "acknowledged before it was written",
    "acknowledged-before-sync": "acknowledged before its sync",
    "renamed-before-sync": "renamed before its data were synced",
    "emptied-in-place": "emptied before it was written again",
    "page-in-place": "overwritten in place",
    "stale-lock": "stale lock",
}
ONE_FILE_A_KEY = ("file-not-synced", "folder-not-synced", "delete-not-synced", "renamed-before-sync", "files")
PAGE, KEYS = 4096, 12


def sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def write(path: str, data: bytes, *, sync: bool = True, flags: int = os.O_TRUNC) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    os.write(descriptor, data)
    if sync:
        os.fsync(descriptor)
    os.close(descriptor)


class Log:
    """Records "CHECKSUM KEY VALUE" in a file that only grows."""

    def __init__(self, folder: str, mistake: str) -> None:
        self.folder, self.mistake, self.data = folder, mistake, {}
        for name in sorted(n for n in os.listdir(folder) if n.startswith("log") or n == "checkpoint"):
            self.read(os.path.join(folder, name))
        self.path = os.path.join(folder, "log0")
        self.file = self.opened(self.path)
        self.count, self.synced = 0, self.file

    def opened(self, path: str) -> int:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.fsync(descriptor)
        sync_folder(self.folder)
        return descriptor

    def read(self, path: str) -> None:
        with open(path, "rb") as file:
            content = file.read()
        good = 0
        for line in content.splitlines(True):
            words = line.split()
            if (
                len(words) != 3
                or not line.endswith(b"\n")
                or int(words[0], 16) != zlib.crc32(line.split(b" ", 1)[1])
            ):
                break
            _, key, value = words
            self.data[key.decode()] = value.decode()
            good += len(line)
        os.truncate(path, good)

    def put(self, key: str, value: str, acknowledge) -> None:
        self.data[key] = value
        body = f"{key} {value}\n".encode()
        record = b"%08x %s" % (zlib.crc32(body), body)
        if self.mistake == "acknowledged-before-write":
            acknowledge()
            time.sleep(0.002)
        self.count += 1
        if self.count % 20 == 0:
            if self.mistake == "old-log-synced":
                self.file = self.opened(os.path.join(self.folder, f"log{self.count // 20}"))
            if self.mistake == "log-dropped-before-checkpoint-synced":
                lines = []
                for k, v in self.data.items():
                    one = f"{k} {v}\n".encode()
                    lines.append(b"%08x %s" % (zlib.crc32(one), one))
                write(os.path.join(self.folder, "checkpoint"), b"".join(lines), sync=False)
                os.ftruncate(self.file, 0)
                os.fsync(self.file)
                acknowledge()
                return
        os.write(self.file, record)
        if self.mistake == "acknowledged-before-sync":
            threading.Thread(target=os.fsync, args=(self.file,)).start()
        elif self.mistake == "old-log-synced":
            os.fsync(self.synced)
        elif self.mistake != "log-not-synced":
            os.fsync(self.file)
        if self.mistake != "acknowledged-before-write":
            acknowledge()

    def delete(self, key: str, acknowledge) -> None:
        self.put(key, "-", acknowledge)

    def all(self) -> dict[str, str]:
        return {key: value for key, value in self.data.items() if value != "-"}


class Files:
    """One file for each key, written under another name and renamed."""

    def __init__(self, folder: str, mistake: str) -> None:
        self.folder, self.mistake = folder, mistake

    def put(self, key: str, value: str, acknowledge) -> None:
        path = os.path.join(self.folder, key)
        if self.mistake == "file-not-synced":
            write(path, value.encode(), sync=False)
            sync_folder(self.folder)
        else:
            write(path + ".new", value.encode(), sync=self.mistake != "renamed-before-sync")
            os.rename(path + ".new", path)
            if self.mistake != "folder-not-synced":
                sync_folder(self.folder)
        acknowledge()

    def delete(self, key: str, acknowledge) -> None:
        os.unlink(os.path.join(self.folder, key))
        if self.mistake not in ("folder-not-synced", "delete-not-synced"):
            sync_folder(self.folder)
        acknowledge()

    def all(self) -> dict[str, str]:
        found = {}
        for name in os.listdir(self.folder):
            if not name.endswith(".new"):
                with open(os.path.join(self.folder, name)) as file:
                    found[name] = file.read() or "empty"
        return found


class Whole:
    """All keys in one file, which is rewritten each time."""

    def __init__(self, folder: str, mistake: str) -> None:
        self.path, self.data = os.path.join(folder, "all"), {}
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.data = dict(line.split() for line in file)
        else:
            write(self.path, b"")
            sync_folder(folder)

    def put(self, key: str, value: str, acknowledge) -> None:
        self.data[key] = value
        content = "".join(f"{k} {v}\n" for k, v in self.data.items()).encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_TRUNC)
        write(self.path + ".audit", f"put {key}\n".encode(), flags=os.O_APPEND)
        os.write(descriptor, content)
        os.fsync(descriptor)
        os.close(descriptor)
        acknowledge()

    def delete(self, key: str, acknowledge) -> None:
        del self.data[key]
        self.put("deleted", key, acknowledge)

    def all(self) -> dict[str, str]:
        return self.data


class Pages:
    """A page for each key, overwritten where it is."""

    def __init__(self, folder: str, mistake: str) -> None:
        path = os.path.join(folder, "pages")
        if not os.path.exists(path):
            write(path, bytes(PAGE * KEYS))
            sync_folder(folder)
        self.file = os.open(path, os.O_RDWR)

    def put(self, key: str, value: str, acknowledge) -> None:
        text = f"{value} ".encode()
        os.pwrite(self.file, (text * (PAGE // len(text) + 1))[:PAGE], PAGE * int(key[1:]))
        os.fsync(self.file)
        acknowledge()

    def delete(self, key: str, acknowledge) -> None:
        os.pwrite(self.file, bytes(PAGE), PAGE * int(key[1:]))
        os.fsync(self.file)
        acknowledge()

    def all(self) -> dict[str, str]:
        found = {}
        for number in range(KEYS):
            page = os.pread(self.file, PAGE, PAGE * number)
            words = page.strip(b"\0").split()
            if words:
                torn = b"\0" in page or any(word != words[0] for word in words[:-1])
                found[f"k{number}"] = "torn" if torn else words[0].decode()
        return found


def store(folder: str, mistake: str):
    if mistake == "stale-lock":
        os.close(os.open(os.path.join(folder, "store.lock"), os.O_CREAT | os.O_EXCL))
        sync_folder(folder)
    if mistake in ONE_FILE_A_KEY:
        return Files(folder, mistake)
    return {"emptied-in-place": Whole, "page-in-place": Pages}.get(mistake, Log)(folder, mistake)


def say(*words: str) -> None:
    os.write(1, (" ".join(words) + "\n").encode())


def work(opened, count: int) -> None:
    draw, there = random.Random(7), set()
    for number in range(count):
        key = f"k{draw.randrange(KEYS)}"
        if key in there and draw.random() < 0.25:
            say("begins", key, "-")
            opened.delete(key, lambda: say("acknowledged", key, "-"))
            there.discard(key)
            continue
        value = f"v{number}"
        say("begins", key, value)
        opened.put(key, value, lambda: say("acknowledged", key, value))
        there.add(key)


def serve(opened, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            connection, _ = listening.accept()
            with connection, connection.makefile("rw") as stream:
                for line in stream:
                    words = line.split()
                    if words[0] == "put":
                        opened.put(words[1], words[2], lambda: None)
                        stream.write("done\n")
                    else:
                        stream.write("".join(f"{k} {v}\n" for k, v in opened.all().items()) + "\n")
                    stream.flush()


def main(verb: str, *words: str) -> None:
    if verb == "ask":  # PORT COUNT: a client of serve; COUNT 0: print everything
        port, count = map(int, words)
        with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as stream:
            for number in range(count):
                key, value = f"k{number % KEYS}", f"v{number}"
                say("begins", key, value)
                stream.write(f"put {key} {value}\n")
                stream.flush()
                assert stream.readline() == "done\n"
                say("acknowledged", key, value)
            if not count:
                stream.write("all\n")
                stream.flush()
                while (line := stream.readline()).strip():
                    say(line.strip())
        return
    folder, mistake, *more = words
    opened = store(folder, mistake)
    if verb == "work":
        work(opened, int(more[0]))
    elif verb == "serve":
        serve(opened, int(more[0]))
    else:
        for key, value in opened.all().items():
            say(key, value)


if __name__ == "__main__":
    main(*sys.argv[1:])
