"""Parts of a study that need trust: root, shells and the like, text run as a program, however it is written."""

from __future__ import annotations

import io

import pytest
from study_examples import whole

from iotrial.cli.consent import ask_consent
from iotrial.errors import RequestError
from iotrial.study.model import Factor, Level, Role, Setting, Study, Workload
from iotrial.study.trust import demands, unmet
from iotrial.study.work import Step
from iotrial.workloads.command import CommandWork
from values import replace


def with_command(
    *argv: str, levels: tuple[str, ...] = (), fixed: tuple[Setting, ...] = (), **changes: object
) -> Study:
    """Return a study whose one workload runs this command; ``levels`` are those of the placeholder ``{x}``."""
    options = (("placeholder", "{x}"),)
    settings = tuple(
        Level(value or "none", (Setting("command.argument", value, options),)) for value in levels
    )
    factors = (Factor("f", Role.TREATMENT, settings, levels[0], levels),) if levels else ()
    work = replace(CommandWork(steps=(Step("s", argv),), files=1, size_bytes=1), **changes)  # type: ignore[arg-type]
    return replace(
        whole(),
        factors=factors,
        fixed=fixed,
        workloads=(Workload("w", "command", work),),
        claims=(),
        trusted=False,
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["sh"], ["/bin/bash", "-c", "x"], ["busybox", "ash"], ["bash5"], ["bash-static"], ["sudo", "id"], ["su"],
        ["env", "sh"], ["env", "-S", "sh -c x"], ["env", "-Ssh -c x"], ["env", "A=b", "/bin/sh"], ["nice", "-n", "5", "zsh"],
        ["find", ".", "-exec", "sh", "-c", "x", ";"], ["xargs", "sh"], ["timeout", "5", "dash"], ["time", "bash"],
        ["stdbuf", "-o0", "sh"], ["taskset", "1", "sh"], ["strace", "-f", "sh"], ["flock", "/tmp/x", "-c", "sh"],
        ["/lib64/ld-linux-x86-64.so.2", "/bin/sh"], ["script", "-c", "sh -i"], ["setsid", "env", "python3", "-c", "x"],
        ["python3", "-c", "x"], ["python3.11", "-Ic", "x"], ["/usr/bin/python", "-c", "x"], ["perl", "-e", "x"],
        ["perl", "-ne", "x"], ["perl", "-E", "x"], ["ruby", "-e", "x"], ["node", "--eval=x"], ["node", "-p", "x"],
        ["php", "-r", "x"], ["lua5.4", "-e", "x"], ["awk", "BEGIN{system(\"id\")}"], ["gawk", "-f", "{file}"],
        ["./own"], ["../x"], ["bin/x"], ["{file}"], ["{x}"], ["{dir}/x"], ["x{x}"],
    ],
    ids=lambda argv: " ".join(argv),
)  # fmt: skip
def test_it_needs_trust(argv: list[str]) -> None:
    study = with_command(*argv)
    assert unmet(study)
    assert not unmet(replace(study, trusted=True))


@pytest.mark.parametrize(
    "argv",
    [
        ["md5sum", "{file}"], ["cat", "{files}"], ["grep", "-r", "sh", "{dir}"], ["dd", "if={file}", "of=/dev/null"],
        ["sort", "--parallel={x}", "{file}"], ["find", "{dir}", "-name", "*.c"], ["tar", "-cf", "/dev/null", "{dir}"],
        ["python3", "script.py"], ["perl", "script.pl"], ["ls", "-l", "{dir}"], ["xz", "-T{x}", "-c", "{file}"],
        ["echo", "sudo"], ["rsync", "-a", "{dir}/", "/dev/null"], ["/usr/bin/wc", "-l", "{file}"], ["nice", "cat", "{file}"],
    ],
    ids=lambda argv: " ".join(argv),
)  # fmt: skip
def test_it_needs_none(argv: list[str]) -> None:
    assert demands(with_command(*argv)) == ()


@pytest.mark.parametrize(
    ("argv", "levels"),
    [
        (["env", "{x}"], ("true",)),
        (["nice", "{x}"], ("5", "sh")),
        (["python3", "{x}", "pass"], ("-V", "-c")),
        (["perl", "-{x}", "x"], ("n", "e")),
        (["cat", "{x}"], ("{y}",)),
    ],
)
def test_a_level_that_makes_it_so_needs_trust(argv: list[str], levels: tuple[str, ...]) -> None:
    nested = (Setting("command.argument", "-c", (("placeholder", "{y}"),)),)
    assert unmet(with_command(*argv, levels=levels, fixed=nested))


def test_root_by_a_condition_needs_trust_as_root_by_the_workload_does() -> None:
    assert "runs its commands as root" in demands(with_command("true", run_as="root"))[0]
    assert (
        "runs its commands as root"
        in demands(with_command("true", fixed=(Setting("process.user", "root"),)))[0]
    )
    assert demands(with_command("true", fixed=(Setting("process.user", "unprivileged"),))) == ()


def test_text_for_the_standard_input_of_an_interpreter_is_a_program() -> None:
    assert demands(with_command("python3", stdin="import os"))
    assert not demands(with_command("cat", stdin="import os"))


def in_level(variable: str, value: str) -> Study:
    return with_command("true", fixed=(Setting("environment.variable", value, (("variable", variable),)),))


@pytest.mark.parametrize(
    "variable",
    [
        "PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "PERL5OPT", "PERL5LIB",
        "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "RUBYOPT", "RUBYLIB", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "GCONV_PATH",
        "LOCPATH", "HOSTALIASES", "TZDIR", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_CONFIG_COUNT", "PAGER", "EDITOR",
        "TAR_OPTIONS", "GZIP", "XZ_OPT", "XZ_DEFAULTS", "GLIBC_TUNABLES", "LESSOPEN", "MAKEFLAGS", "lang", "OF_TOMORROW",
    ],
)  # fmt: skip
def test_a_variable_needs_trust_unless_it_is_known_to_be_harmless(variable: str) -> None:
    assert variable in demands(with_command("true", environment=((variable, "1"),)))[0]
    assert variable in demands(in_level(variable, "1"))[0]


@pytest.mark.parametrize(
    ("variable", "harmless", "other"),
    [
        ("LANG", "de_DE.UTF-8", "../../tmp/evil"),
        ("LC_ALL", "C", "/tmp/evil"),
        ("TZ", "Europe/Berlin", ":/etc/shadow"),
        ("TZ", "UTC", "a/../../../etc/shadow"),
        ("OMP_NUM_THREADS", "8", "8,/tmp"),
        ("MALLOC_ARENA_MAX", "1", "$(id)"),
        ("TMPDIR", "{out}/tmp", "/etc"),
        ("TMPDIR", "{dir}", "{dir}/../.."),
    ],
)
def test_a_harmless_variable_needs_trust_for_a_value_that_may_not_be(
    variable: str, harmless: str, other: str
) -> None:
    assert demands(with_command("true", environment=((variable, harmless),))) == ()
    assert demands(in_level(variable, harmless)) == ()
    assert variable in demands(with_command("true", environment=((variable, other),)))[0]
    assert variable in demands(in_level(variable, other))[0]


def test_a_variable_is_judged_by_what_levels_put_into_it() -> None:
    threads = (("OMP_NUM_THREADS", "{x}"),)
    assert demands(with_command("true", "{x}", levels=("1", "8"), environment=threads)) == ()
    assert demands(with_command("true", "{x}", levels=("1", "/tmp"), environment=threads))


def test_more_levels_than_can_be_looked_at_need_trust_and_little_time() -> None:
    study = with_command("echo", "{x}", *["a" * 4000] * 200, levels=tuple(str(n) for n in range(200)))
    many = tuple(Setting("command.argument", str(n), (("placeholder", "{x}"),)) for n in range(64 * 256))
    assert "more levels than can be checked" in demands(replace(study, fixed=many))[0]


def test_commands_of_a_study_from_elsewhere_need_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    foreign = with_command("cat", "{file}")
    with pytest.raises(RequestError, match=r"so nothing was changed: .*Run its commands"):
        ask_consent(foreign, trust=False)
    ask_consent(foreign, trust=True)
    ask_consent(replace(foreign, trusted=True), trust=False)
    files = tuple(one for one in whole().workloads if one.kind == "files")
    ask_consent(replace(foreign, workloads=files), trust=False)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"serve": ("sh", "-c", "x")}, "sh"),
        ({"serve": ("true",), "make": ("sh", "-c", "x")}, "sh"),
        ({"serve": ("true",), "serve_environment": (("LD_PRELOAD", "x"),)}, "LD_PRELOAD"),
        ({"inherit_environment": True}, "your environment"),
        ({"stdout": "/dev/sda"}, "/dev/sda"),
        ({"stdout": "inherit"}, "output of iotrial"),
    ],
)
def test_a_server_the_environment_and_an_output_elsewhere_need_trust(
    changes: dict[str, object], reason: str
) -> None:
    assert demands(with_command("true")) == ()
    assert any(reason in one for one in demands(with_command("true", **changes)))
