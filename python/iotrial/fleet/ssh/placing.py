"""A bundle on a host: whether the host can use one, how it gets there, and how it goes again.

Every command is one line of POSIX shell without quotes of its own, so that it passes through whatever login shell the host
has. The folder is the user's own, ``~/.cache/iotrial`` with mode 0700; it is written beside its name and then renamed, so
that a link that is cut half-way leaves no half of one.
"""

from __future__ import annotations

import gzip
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, cast

from iotrial.errors import IotrialError, RequestError
from iotrial.fleet.link import Lost
from iotrial.fleet.ssh.bundle import Bundle
from iotrial.fleet.ssh.client import Ssh
from iotrial.legible import shown

LOOK_S = 60.0
CLEAN_S = 300.0
#: how slow a way may be, and what unpacking may take besides
SLOWEST_BYTES_S = 100_000
UNPACK_S = 300.0
_BEGIN = "iotrial-begin"
_END = "iotrial-end"
_FOLDER = "c=${XDG_CACHE_HOME:-$HOME/.cache}/iotrial"

_LOOK = (
    f"{_FOLDER}; echo {_BEGIN}; uname -s; uname -m; getconf GNU_LIBC_VERSION 2>/dev/null || echo none; "
    "id -u; command -v tar || echo none; command -v gzip || echo none; "
    "if test -f $c/bundle-@ID/MANIFEST; then echo there; else echo absent; fi; "
    f"echo {_END}"
)
_PLACE = (
    f"{_FOLDER}; umask 077; d=$c/bundle-@ID; t=$c/part-@ID-$$; "
    "mkdir -p $c && chmod 700 $c && mkdir $t || exit 1; "
    "tar -x@FLAGSf - -C $t || { rm -rf $t; exit 1; }; "
    # somebody else may have brought the same meanwhile, and run from it
    "if test @REPLACE = no && test -f $d/MANIFEST; then rm -rf $t; "
    "else test -d $d && mv $d $t.old; mv $t $d || exit 1; rm -rf $t.old; fi; "
    f"echo {_BEGIN}; echo {_END}"
)
#: nothing is taken away under a process that runs from it
_CLEAN = (
    f"{_FOLDER}; c=$(cd $c 2>/dev/null && pwd -P || echo $c); echo {_BEGIN}; "
    "for p in /proc/[0-9]*; do case $(ls -l $p/exe 2>/dev/null) in *$c/bundle-*) echo busy; "
    f"echo {_END}; exit 0;; esac; done; "
    "for d in $c/bundle-* $c/part-*; do test -d $d && rm -rf $d && echo gone; done; "
    f"rmdir $c 2>/dev/null; echo {_END}"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What a host is, before anything is sent to it."""

    root: bool
    gzip: bool
    #: whether this very bundle seems to be there
    there: bool


def _quoted(script: str, bundle: str = "") -> str:
    # Without a field separator, variables need no quotes: a home may have a blank in its name.
    body = "IFS=; " + script.replace("@ID", bundle)
    assert not {"'", "!"} & set(body)
    return f"exec sh -c '{body}'"


def look(ssh: Ssh, bundle: Bundle) -> Found:
    """What the host has. Raises RequestError where it cannot use the bundle, naming what it has and what is needed."""
    name = str(ssh.destination)
    system, machine, library, uid, tar, unzip, there = _lines(
        ssh.run(_quoted(_LOOK, bundle.id), within_s=LOOK_S), name, 7
    )
    if system != "Linux":
        raise RequestError(f"host {name}: runs {shown(system)}, wanted Linux")
    if machine != bundle.machine:
        raise RequestError(
            f"host {name}: its processor is {shown(machine)}, what would be carried there is for {bundle.machine}",
            hint="conduct it from a machine of the same kind, or install iotrial there and use --fleet",
        )
    words = library.split()
    if len(words) != 2 or words[0] != "glibc" or not _numbers(words[1]):
        raise RequestError(
            f"host {name}: has no GNU C library ({shown(library)}), which what is carried there needs",
            hint="install iotrial on that host and use --fleet",
        )
    if _numbers(words[1]) < bundle.c_library:
        raise RequestError(
            f"host {name}: has GNU C library {shown(words[1])}, "
            f"what is carried there needs {bundle.c_library[0]}.{bundle.c_library[1]} or later",
            hint="conduct it from a machine with a system as old as the oldest host, or install iotrial there "
            "and use --fleet",
        )
    if tar == "none":
        raise RequestError(f"host {name}: has no tar, which unpacks what is carried there")
    return Found(uid == "0", unzip != "none", there == "there")


def place(ssh: Ssh, bundle: Bundle, found: Found, *, replace: bool = False) -> None:
    """Carry the bundle there and unpack it; ``replace``: though it seems to be there.

    Raises Lost, and IotrialError with what the host said (no space, say).
    """
    script = _PLACE.replace("@FLAGS", "z" if found.gzip else "").replace(
        "@REPLACE", "yes" if replace else "no"
    )
    within_s = UNPACK_S + bundle.size / SLOWEST_BYTES_S
    with closing(bundle.path.open("rb") if found.gzip else gzip.open(bundle.path)) as archive:
        answer = ssh.run(_quoted(script, bundle.id), sends=cast(BinaryIO, archive), within_s=within_s)
    _lines(answer, str(ssh.destination), 0)


def clean(ssh: Ssh) -> int:
    """Take away every bundle from the host; how many there were. Raises RequestError while something runs from one."""
    name = str(ssh.destination)
    gone = _lines(ssh.run(_quoted(_CLEAN), within_s=CLEAN_S), name, None)
    if "busy" in gone:
        raise RequestError(
            f"host {name}: a trial goes on there, from what would be taken away; nothing was",
            hint="it ends by itself, sooner when nobody follows it (`run --grace`)",
        )
    return gone.count("gone")


def start_command(bundle: Bundle, token: str, name: str) -> str:
    """The command that verifies the bundle on the host and answers requests from then on."""
    script = f"{_FOLDER}; exec $c/bundle-@ID/bin/python -m iotrial.fleet.ssh.resident @ID {token} {name}"
    return _quoted(script, bundle.id)


def _numbers(text: str) -> tuple[int, int]:
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdecimal() and part.isascii() and len(part) < 6 for part in parts[:2]):
        return (0, 0)
    return int(parts[0]), int(parts[1])


def _lines(answer: str, name: str, count: int | None) -> list[str]:
    """The lines between the two marks, whatever the shell of the host says before and after them."""
    lines = answer.splitlines()
    try:
        first = lines.index(_BEGIN)
        found = lines[first + 1 : lines.index(_END, first)]
    except ValueError:
        raise Lost(
            f"host {name}: no answer to be understood ({shown(answer[:200]) or 'nothing'})",
            hint="does its account have a shell that runs commands?",
        ) from None
    if count is not None and len(found) != count:
        raise IotrialError(f"host {name}: {len(found)} lines where {count} were asked for")
    return found
