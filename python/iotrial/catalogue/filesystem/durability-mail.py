"""Delivers messages as mail servers do, and looks for them after a power cut.

    python3 durability-mail.py deliver FOLDER MESSAGES
    python3 durability-mail.py check FOLDER ACKNOWLEDGED

``deliver`` writes each message to FOLDER/tmp, syncs it, renames it to FOLDER/new and syncs that folder; then the message
is acknowledged: at the socket in IOTRIAL_MARKS if there is one, or else not at all. It prints the seconds all that took. The
old content of the free blocks is the junk of a large file that it deletes first.
``check`` reads the numbers of acknowledged messages, one a line. Each must be in FOLDER/new; every message there must be
whole, because it was synced before it was renamed; and what is in FOLDER/tmp may be incomplete, but no byte of it
may be from anything else.
"""

from __future__ import annotations

import os
import socket
import sys
import time

#: bytes of message number n: 1 to 16 KiB, different for neighbours
SIZES = [1024 * (1 + 7 * n % 16) for n in range(16)]
MARKS = "IOTRIAL_MARKS"


def content(number: int) -> bytes:
    line = f"message {number:06d}: every line names it, so that no other data are taken for it\n".encode()
    size = SIZES[number % len(SIZES)]
    return (line * (size // len(line) + 1))[:size]


def sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def deliver(folder: str, messages: int) -> None:
    temporary, new = f"{folder}/tmp", f"{folder}/new"
    for path in (temporary, new):
        os.mkdir(path)
    junk = f"{folder}/junk"
    if os.path.exists(junk):
        os.unlink(junk)
    sync_folder(folder)
    marks = None
    if MARKS in os.environ:
        marks = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        marks.connect(os.environ[MARKS])
    began = time.monotonic()
    for number in range(messages):
        file = os.open(f"{temporary}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(file, content(number))
        os.fsync(file)
        os.close(file)
        os.rename(f"{temporary}/{number}", f"{new}/{number}")
        sync_folder(new)
        if marks is not None:
            marks.sendall(str(number).encode())
            if not marks.recv(1):
                sys.exit("the disk that logs has ended")
    print(f"seconds {time.monotonic() - began:.6f}")


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def listed(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


def check(folder: str, acknowledged: str) -> None:
    with open(acknowledged, encoding="ascii") as file:
        wanted = {int(line) for line in file}
    there = listed(f"{folder}/new")
    for number in sorted(wanted - {int(name) for name in there}):
        print(f"lost message {number}")
    for name in there:
        found, expected = read(f"{folder}/new/{name}"), content(int(name))
        if found != expected:
            # one that was acknowledged and is empty or short is lost; anything else is not what was written
            whole = len(found) == len(expected) and any(found)
            what = "corrupt" if whole or int(name) not in wanted else "lost"
            print(f"{what} message {name}: {len(found)} bytes, not the {len(expected)} that were synced")
    for name in listed(f"{folder}/tmp"):
        found, expected = read(f"{folder}/tmp/{name}"), content(int(name))
        strange = [
            at for at, byte in enumerate(found) if byte not in (0, expected[at] if at < len(expected) else 0)
        ]
        if strange:
            print(
                f"corrupt unfinished message {name}: byte {strange[0]} of {len(found)} is from something else"
            )


if __name__ == "__main__":
    if sys.argv[1] == "deliver":
        deliver(sys.argv[2], int(sys.argv[3]))
    else:
        check(sys.argv[2], sys.argv[3])
