"""What a study asks for that only a trusted one may have: root, or a program that runs whatever text it is given.

Without either, a command runs as the user who called iotrial, with the rights that this user has anyway.
The lists are a courtesy to the reader of a foreign study, no sandbox: any program may start another, and many
that are not named here can be talked into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from iotrial.study.fio_job import JobProblem, beyond_the_lab
from iotrial.study.model import CommandWork, FioWork, Setting, Step, Study

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
#: programs that start the program which stands among their arguments
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
#: interpreters, and the letters of those options whose text they run ("": their first plain argument)
INTERPRETERS = {
    "awk": "", "gawk": "", "mawk": "", "nawk": "", "lua": "e", "luajit": "e", "node": "ep", "nodejs": "ep", "perl": "eE",
    "php": "rBRE", "pypy": "c", "python": "c", "ruby": "e", "Rscript": "e", "tclsh": "", "guile": "ce", "make": "", "ed": "",
}  # fmt: skip
_LOADER = re.compile(r"ld(?:-linux.*|-musl.*)?\.so(?:\..*)?")
_VERSION = re.compile(r"[-.]?[0-9][0-9.]*$|-static$|[.-]distrib$")
_FIO_VALUE = re.compile(r"[A-Za-z0-9_.,:%+-]{1,100}")
_WORDS = re.compile(r"[\s=;,:|&()'\"`]+")
#: arguments of all variants together, in characters; a study in good faith has some thousands
MOST_LOOKED_AT = 4_000_000


def demands(study: Study) -> tuple[str, ...]:
    """What in this study needs trust, in words, whether or not it is trusted; empty where nothing does."""
    found = []
    settings = [*study.fixed, *(s for f in study.factors for level in f.levels for s in level.settings)]
    commands = [w for w in study.workloads if isinstance(w.work, CommandWork)]
    as_root = any(setting.knob == "process.user" and setting.value == "root" for setting in settings)
    for workload in commands:
        work = workload.work
        assert isinstance(work, CommandWork)
        name = f'workload "{workload.name}"'
        if work.run_as == "root" or as_root:
            found.append(f"{name} runs its commands as root")
        for step in work.steps:
            if "{" in step.argv[0]:
                found.append(f'{name} takes the program of step "{step.name}" from a level or a file')
            elif "/" in step.argv[0] and not step.argv[0].startswith("/"):
                found.append(f'{name} takes the program of step "{step.name}" from its working folder')
            variants = _variants(step, settings)
            reasons = (reason for argv in variants for reason in _reasons(argv, stdin=work.stdin))
            found += [f"{name} {reason}" for reason in dict.fromkeys(reasons)]
            found += [f"{name} {reason}" for reason in _nested(step, settings)]
        found += [
            f"{name} sets {variable}, which changes what its programs are"
            for variable, _ in work.environment
            if variable == "PATH" or variable.startswith("LD_")
        ]
    for workload in study.workloads:
        if isinstance(workload.work, FioWork):
            found += [f'workload "{workload.name}" {reason}' for reason in _of_fio(workload.work, settings)]
            if workload.work.run_as == "root" or as_root:
                found.append(f'workload "{workload.name}" runs fio as root')
    commands = [w for w in study.workloads if isinstance(w.work, CommandWork | FioWork)]
    if commands and any(
        s.knob == "environment.variable" and ("variable", "PATH") in s.options for s in settings
    ):
        found.append("a level sets PATH, which changes what programs are")
    return tuple(dict.fromkeys(found))


def unmet(study: Study) -> tuple[str, ...]:
    """What this study needs trust for and is not given."""
    return () if study.trusted else demands(study)


def _of_fio(work: FioWork, settings: list[Setting]) -> Iterator[str]:
    """What the job file has fio do beyond the lab, as written and with each placeholder as each level has it."""
    try:
        yield from (f"gives fio {reason}" for reason in beyond_the_lab(work.job))
        looked_at = 0
        for setting in settings:
            placeholder = dict(setting.options).get("placeholder")
            if placeholder is None or placeholder not in work.job:
                continue
            looked_at += len(work.job)
            if looked_at > MOST_LOOKED_AT:
                yield "has more levels than can be looked at"
                return
            if not _FIO_VALUE.fullmatch(setting.value):
                yield f"puts a level into a job file that is no plain word ({placeholder})"
                continue
            filled = work.job.replace(placeholder, setting.value)
            yield from (f"gives fio {reason}" for reason in beyond_the_lab(filled))
    except JobProblem as problem:
        yield f"has a job file that {problem}"


def _variants(step: Step, settings: list[Setting]) -> Iterator[tuple[str, ...]]:
    """The arguments as written, and with each placeholder as each level has it."""
    yield step.argv
    length = sum(map(len, step.argv))
    looked_at = 0
    for setting in settings:
        for key, placeholder in setting.options:
            if key == "placeholder" and placeholder and any(placeholder in word for word in step.argv):
                looked_at += length
                if looked_at > MOST_LOOKED_AT:
                    yield ("{more levels than can be looked at}",)
                    return
                yield tuple(word.replace(placeholder, setting.value) for word in step.argv)


def _nested(step: Step, settings: list[Setting]) -> Iterator[str]:
    """A level that holds another placeholder could put together what no single level shows."""
    placeholders = {value for s in settings for key, value in s.options if key == "placeholder"}
    used = [p for p in placeholders if any(p in word for word in step.argv)]
    values = (
        {s.value for s in settings if any(key == "placeholder" for key, _ in s.options)} if used else set()
    )
    if any(placeholder in value for value in values if "{" in value for placeholder in placeholders):
        yield "has placeholders within the values of placeholders"


def _reasons(argv: tuple[str, ...], *, stdin: str) -> Iterator[str]:
    """Why these arguments need trust, in words."""
    if len(argv) == 1 and argv[0].startswith("{more"):
        yield f"has {argv[0].strip('{}')}"
        return
    first = _program(argv[0])
    if first in LAUNCHERS or _LOADER.fullmatch(PurePosixPath(argv[0]).name):
        # What it starts stands somewhere among the rest, perhaps inside one argument (`env -S "sh -c x"`).
        if any(
            "{" in word.replace("{files}", "").replace("{file}", "").replace("{dir}", "") for word in argv[1:]
        ):
            yield f"hands {first} arguments from a level, which may be a program"
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
            yield f"has {program} run a text of the study"


def _is_inline(word: str, letters: str) -> bool:
    if word.startswith("--"):
        return word.partition("=")[0] in ("--eval", "--print", "--run", "--command")
    return word.startswith("-") and any(letter in word[1:] for letter in letters)


def _program(word: str) -> str:
    """The name under which the lists have a program: no folder, no version."""
    name = PurePosixPath(word).name
    while (shorter := _VERSION.sub("", name)) not in (name, ""):
        name = shorter
    return name
