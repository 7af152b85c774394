"""What a command does that requires trust: running a program that executes arbitrary text.

The lists are a courtesy to the reader of a foreign study, not a sandbox: any program may start another, and
many that are not listed here can be made to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from iotrial.study.model import Setting
from iotrial.study.work import Step

SHELLS = frozenset(
    {
        "ash",
        "bash",
        "busybox",
        "csh",
        "dash",
        "elvish",
        "fish",
        "hush",
        "ksh",
        "mksh",
        "nu",
        "oksh",
        "pwsh",
        "rbash",
    }
    | {"rksh", "sash", "sh", "tcsh", "toybox", "xonsh", "yash", "zsh"}
)
RAISERS = frozenset({"doas", "pkexec", "run0", "runuser", "setpriv", "su", "sudo", "sudoedit"})
#: programs that start another program named in their arguments
LAUNCHERS = frozenset(
    {
        "capsh",
        "chroot",
        "chrt",
        "cpulimit",
        "env",
        "expect",
        "faketime",
        "find",
        "flock",
        "gdb",
        "ionice",
        "ltrace",
    }
    | {
        "nice",
        "nohup",
        "nsenter",
        "numactl",
        "parallel",
        "perf",
        "prlimit",
        "script",
        "setarch",
        "setsid",
        "ssh",
        "stdbuf",
    }
    | {
        "start-stop-daemon",
        "strace",
        "systemd-run",
        "taskset",
        "time",
        "timeout",
        "unshare",
        "valgrind",
        "watch",
        "xargs",
    }
)
#: interpreters, with the letters of the options that execute their text ("": the first plain argument)
INTERPRETERS = {
    "awk": "", "gawk": "", "mawk": "", "nawk": "", "lua": "e", "luajit": "e", "node": "ep", "nodejs": "ep", "perl": "eE",
    "php": "rBRE", "pypy": "c", "python": "c", "ruby": "e", "Rscript": "e", "tclsh": "", "guile": "ce", "make": "", "ed": "",
}  # fmt: skip
_LOADER = re.compile(r"ld(?:-linux.*|-musl.*)?\.so(?:\..*)?")
_VERSION = re.compile(r"[-.]?[0-9][0-9.]*$|-static$|[.-]distrib$")
#: placeholders that no level fills in
_OWN = re.compile(r"\{(?:file|files|dir|out)\}")
_WORDS = re.compile(r"[\s=;,:|&()'\"`]+")
_NUMBER = re.compile(r"[0-9]{1,12}")
_WORD = re.compile(r"(?!.*[.][.])[A-Za-z0-9_.@,+-]{0,64}")  # no slash: cannot be a path
_ZONE = re.compile(r"(?!.*\.\.)[A-Za-z0-9_+-][A-Za-z0-9_+:.,/-]{0,63}")
_OWN_FOLDER = re.compile(r"\{(?:dir|out)\}(?:/[A-Za-z0-9_-]{1,64})*")
#: Variables that change only language, clock, number of threads or size of memory pools, with the values that
#: cannot do more than that. Every other name requires trust: too many run a program or read something that
#: the study chooses (BASH_ENV, PERL5OPT, PYTHONPATH, GCONV_PATH, GIT_SSH_COMMAND, LD_PRELOAD, PAGER ...), or
#: add options that the command does not show (TAR_OPTIONS, XZ_OPT, GZIP, GLIBC_TUNABLES ...), and no list of
#: these is ever complete.
HARMLESS = {
    **dict.fromkeys(
        (
            *(
                "LANG",
                "LC_ALL",
                "LC_COLLATE",
                "LC_CTYPE",
                "LC_MESSAGES",
                "LC_MONETARY",
                "LC_NUMERIC",
                "LC_TIME",
            ),
            *("NO_COLOR", "POSIXLY_CORRECT"),
        ),
        _WORD,
    ),
    "TZ": _ZONE,
    "TMPDIR": _OWN_FOLDER,
    **dict.fromkeys(
        (
            *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"),
            *("GOMAXPROCS", "GOGC"),
            *("MALLOC_ARENA_MAX", "MALLOC_ARENA_TEST", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_"),
            *("MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE"),
            *("ZSTD_CLEVEL", "ZSTD_NBTHREADS", "SOURCE_DATE_EPOCH", "COLUMNS", "LINES"),
        ),
        _NUMBER,
    ),
}
#: total length of the arguments of all variants, in characters; legitimate studies have some thousands
MOST_LOOKED_AT = 4_000_000


def demands(
    steps: Sequence[Step],
    settings: Sequence[Setting],
    *,
    stdin: str = "",
    environment: Sequence[tuple[str, str]] = (),
) -> Iterator[str]:
    """Yield what in these commands requires trust, as written and with each placeholder replaced by each setting."""
    for step in steps:
        if "{" in step.argv[0]:
            yield f'takes the program of step "{step.name}" from a level or a file'
        elif "/" in step.argv[0] and not step.argv[0].startswith("/"):
            yield f'takes the program of step "{step.name}" from its working folder'
        for argv in _variants(step.argv, settings):
            yield from _reasons(argv, stdin=stdin)
        yield from _nested(step, settings)
    for variable, value in environment:
        written, *filled = (text for (text,) in _variants((value,), settings))
        yield from _of_variable(variable, filled or [written])


def of_levels(settings: Sequence[Setting]) -> Iterator[str]:
    """Yield what requires trust in the variables that levels set."""
    for setting in settings:
        if setting.knob == "environment.variable":
            for key, variable in setting.options:
                if key == "variable":
                    yield from _of_variable(variable, (setting.value,))


def _of_variable(variable: str, values: Sequence[str]) -> Iterator[str]:
    """Yield why a variable with these values requires trust, in words."""
    if variable not in HARMLESS:
        yield f"sets {variable}, which may change what its programs are or do"
    elif wrong := [value for value in values if not HARMLESS[variable].fullmatch(value)]:
        yield f'sets {variable} to "{wrong[0][:80]}", which is not one of its harmless values'


def _variants(texts: tuple[str, ...], settings: Sequence[Setting]) -> Iterator[tuple[str, ...]]:
    """Yield the texts as written, then with each placeholder replaced by each level's value."""
    yield texts
    length = sum(map(len, texts))
    looked_at = 0
    for setting in settings:
        for key, placeholder in setting.options:
            if key == "placeholder" and placeholder and any(placeholder in text for text in texts):
                looked_at += length
                if looked_at > MOST_LOOKED_AT:
                    yield ("{more levels than can be checked}",)
                    return
                yield tuple(text.replace(placeholder, setting.value) for text in texts)


def _nested(step: Step, settings: Sequence[Setting]) -> Iterator[str]:
    """Yield a reason if placeholder values contain placeholders: combined, they could form text that no level shows."""
    placeholders = {value for s in settings for key, value in s.options if key == "placeholder"}
    used = [p for p in placeholders if any(p in word for word in step.argv)]
    values = (
        {s.value for s in settings if any(key == "placeholder" for key, _ in s.options)} if used else set()
    )
    if any(placeholder in value for value in values if "{" in value for placeholder in placeholders):
        yield "has placeholders inside values of placeholders"


def _reasons(argv: tuple[str, ...], *, stdin: str) -> Iterator[str]:
    """Yield why these arguments require trust, in words."""
    if len(argv) == 1 and argv[0].startswith("{more"):
        yield f"has {argv[0].strip('{}')}"
        return
    first = _program(argv[0])
    if first in LAUNCHERS or _LOADER.fullmatch(PurePosixPath(argv[0]).name):
        # The program it starts is somewhere in the rest, perhaps inside one argument (`env -S "sh -c x"`).
        if any("{" in _OWN.sub("", word) for word in argv[1:]):
            yield f"passes {first} arguments from a level, which may be a program"
        words = [part for word in argv for part in _WORDS.split(word.removeprefix("-S")) if part]
        for at, word in enumerate(words):
            yield from _reasons_of(_program(word), words[at + 1 :], stdin=stdin)
        return
    yield from _reasons_of(first, list(argv[1:]), stdin=stdin)


def _reasons_of(program: str, rest: list[str], *, stdin: str) -> Iterator[str]:
    if program in SHELLS:
        yield f"starts a shell ({program})"
    elif program in RAISERS:
        yield f"starts a change of user ({program})"
    elif program in INTERPRETERS:
        letters = INTERPRETERS[program]
        inline = [word for word in rest if _is_inline(word, letters)]
        if inline or stdin or not letters:
            yield f"makes {program} run text from the study"


def _is_inline(word: str, letters: str) -> bool:
    if word.startswith("--"):
        return word.partition("=")[0] in ("--eval", "--print", "--run", "--command")
    return word.startswith("-") and any(letter in word[1:] for letter in letters)


def _program(word: str) -> str:
    """Return the program's name as in the lists: without folder and version."""
    name = PurePosixPath(word).name
    while (shorter := _VERSION.sub("", name)) not in (name, ""):
        name = shorter
    return name
