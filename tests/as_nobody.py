"""Run the command line as user nobody, with permission to read the interpreter's own files.

Tests run as root in a folder that only root may enter; a real user could read his own Python. So only
CAP_DAC_READ_SEARCH is kept, which programs started from here do not inherit.
"""

from __future__ import annotations

import ctypes
import os
import sys

NOBODY = 65534
PR_SET_KEEPCAPS = 8
LINUX_CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_READ_SEARCH = 2


def become_nobody() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    if libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    bit = 1 << CAP_DAC_READ_SEARCH
    data = (ctypes.c_uint32 * 6)(bit, bit, 0, 0, 0, 0)
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    become_nobody()
    from iotrial.cli import main

    sys.argv[0] = "iotrial"
    main()
