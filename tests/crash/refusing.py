"""Run a program in which openat(2) with O_TMPFILE fails with EOPNOTSUPP, by a filter of system calls."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_OPENAT = {"x86_64": 257, "aarch64": 56}[platform.machine()]
#: what O_TMPFILE has besides O_DIRECTORY
_TMPFILE = os.O_TMPFILE & ~os.O_DIRECTORY
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EOPNOTSUPP

_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
#: offsets in struct seccomp_data: the number of the call, and the low half of its third argument
_NUMBER, _FLAGS = 0, 32

_FILTER = (
    (_LOAD, 0, 0, _NUMBER),
    (_IF_EQUAL, 0, 3, _OPENAT),
    (_LOAD, 0, 0, _FLAGS),
    (_IF_ANY_BIT, 0, 1, _TMPFILE),
    (_RETURN, 0, 0, _REFUSE),
    (_RETURN, 0, 0, _ALLOW),
)


def main() -> None:
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in _FILTER))
    program = ctypes.create_string_buffer(struct.pack("HP", len(_FILTER), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "cannot filter system calls")
    os.execv(sys.argv[1], sys.argv[1:])


main()
