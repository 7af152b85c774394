"""Shell completion in the shells themselves: in bash, and in zsh and fish if installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from store_examples import header

import program
from generators.indexes import options_index
from generators.manual import COMPLETIONS
from iotrial.cli import cli
from iotrial.cli.groups import COMPLETING
from iotrial.cli.suggestions import OPTIONS, workload_kinds
from iotrial.store import Store
from iotrial.study.work import kinds

ROOT = Path(__file__).parents[2]
ASK = {
    "bash": """
source "$SCRIPT"; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=()
_iotrial_completion "$1"; printf '%s\\n' "${COMPREPLY[@]}"
""",
    "zsh": """
compdef() { : }; compadd() { print -r -- "${@[-1]}" }; _path_files() { : }
_describe() { local one; for one in ${(P)${@[-1]}}; do print -r -- "${one%%:*}"; done }
source "$SCRIPT"; words=("$@"); CURRENT=$#; _iotrial
""",
    "fish": 'source "$SCRIPT"; complete -C "$argv" | string split -f 1 \\t',
}
SHELLS = [
    pytest.param(shell, marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell}"))
    for shell in ASK
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a program called iotrial, and the completion script of each shell."""
    folder = tmp_path_factory.mktemp("completion")
    starter = folder / "iotrial"
    starter.write_text(f'#!/bin/sh\nexec {sys.executable} -m iotrial "$@"\n')
    starter.chmod(0o755)
    for shell in ASK:
        (folder / shell).write_text(program.iotrial("completion", shell).stdout)
    return folder


def offers(installed: Path, shell: str, *words: str, cwd: Path) -> list[str]:
    environment = {
        **os.environ,
        "PATH": f"{installed}:{os.environ['PATH']}",
        "SCRIPT": str(installed / shell),
        "HOME": str(cwd),
    }
    given = [" ".join(("iotrial", *words))] if shell == "fish" else ["iotrial", *words]
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    name = [] if shell == "fish" else ["ask"]
    done = subprocess.run(
        [shell, *options, "-c", ASK[shell], *name, *given],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=environment,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


@pytest.mark.parametrize("shell", SHELLS)
def test_verbs_studies_factors_and_levels_are_offered(installed: Path, shell: str, tmp_path: Path) -> None:
    def completions(*words: str) -> list[str]:
        return offers(installed, shell, *words, cwd=tmp_path)

    assert sorted(completions("re")) == ["record", "refine", "report", "restore", "resume", "revert"]
    assert completions("show", "files/") == ["files/links", "files/load-model", "files/permissions"]
    assert completions("run", "files/permissions", "--set", "mo") == ["mode="]
    assert completions("run", "--fail-if", "slo") == ["slower"]
    assert completions("try", "block.sch") == ["block.scheduler="]


@pytest.mark.parametrize("shell", [one for one in SHELLS if one.values[0] != "bash"])
def test_levels_are_offered_one_after_the_other(installed: Path, shell: str, tmp_path: Path) -> None:
    assert offers(installed, shell, "try", "block.scheduler=none,m", cwd=tmp_path) == [
        "block.scheduler=none,mq-deadline"
    ]
    word = "mode=0444,07"
    assert offers(installed, shell, "run", "files/permissions", "--set", word, cwd=tmp_path) == [
        "mode=0444,0777"
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--set", "mode", "=", "0444,07"], ["0444,0777"]),
        (["--set", "mode", "="], ["0444", "0555", "0666", "0777", "all"]),
        (["--set=mode", "=", "05"], ["0555"]),
        (["--set", "=", "mode", "=", "05"], ["0555"]),
        (["--condition", "size", "=", "100"], ["100KiB"]),
        (["--condition", "workl"], ["workload="]),
        (["--lab", "=", "im"], ["image"]),
    ],
)
def test_bash_takes_words_apart_and_gets_what_belongs_to_the_last_part(
    installed: Path, words: list[str], expected: list[str], tmp_path: Path
) -> None:
    assert offers(installed, "bash", "run", "files/permissions", *words, cwd=tmp_path) == expected


def test_after_two_dashes_no_knob_is_offered(installed: Path, tmp_path: Path) -> None:
    """Then bash completes files by itself."""
    assert offers(installed, "bash", "try", "scheduler=none,bfq", "block.sch", cwd=tmp_path) == [
        "block.scheduler="
    ]
    assert (
        offers(installed, "bash", "try", "scheduler=none,bfq", "--", "cat", "block.sch", cwd=tmp_path) == []
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_trials_and_packed_ones_are_offered(installed: Path, shell: str, state: Path, tmp_path: Path) -> None:
    with Store.open(state / "trials.db") as store:
        for number in range(12):
            store.create_trial(header(f"{number:032x}"))
    (tmp_path / "of a friend.iotrial").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "trials").mkdir()
    (tmp_path / "\x1b[31m.iotrial").touch()
    assert sorted(offers(installed, shell, "compare", "3", "1", cwd=tmp_path)) == ["1", "10", "11", "12"]
    found = offers(installed, shell, "report", "1", cwd=tmp_path)
    assert sorted(found) == ["1", "10", "11", "12"]
    found = [one.replace("\\", "") for one in offers(installed, shell, "import", "", cwd=tmp_path)]
    assert sorted(found) == ["of a friend.iotrial", "trials/"]


def test_studies_in_files_are_offered_with_their_factors(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('[[factor]]\nname = "depth"\nlevels = [{ label = "4 deep" }, "9"]\n')
    (tmp_path / "broken.toml").write_text("[[")
    assert offers(installed, "bash", "run", "mi", cwd=tmp_path) == ["mine.toml"]
    assert offers(installed, "bash", "run", "mine.toml", "--set", "depth", "=", cwd=tmp_path) == [
        "4deep",
        "9",
        "all",
    ]
    assert offers(installed, "bash", "run", "broken.toml", "--set", "", cwd=tmp_path) == []
    assert offers(installed, "bash", "run", "missing/study", "--set", "", cwd=tmp_path) == []


@pytest.mark.parametrize("verb", ["try", "best"])
def test_traces_are_offered_to_replay(installed: Path, verb: str, tmp_path: Path) -> None:
    for name in ("app.iotrace", "app.toml"):
        (tmp_path / name).touch()
    assert offers(installed, "bash", verb, "--replay", "a", cwd=tmp_path) == ["app.iotrace"]
    assert offers(installed, "bash", verb, "--timing", "fl", cwd=tmp_path) == ["flat-out"]


def test_a_damaged_store_offers_nothing_and_says_nothing(
    installed: Path, state: Path, tmp_path: Path
) -> None:
    state.mkdir(parents=True)
    (state / "trials.db").write_text("SQLite format 3\0 and then nothing that is one")
    assert offers(installed, "bash", "report", "", cwd=tmp_path) == ["last"]


def test_completing_leaves_the_store_as_it_is(installed: Path, state: Path, tmp_path: Path) -> None:
    assert offers(installed, "bash", "report", "", cwd=tmp_path) == ["last"]
    assert not state.exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_is_one_that_its_shell_can_read(installed: Path, shell: str) -> None:
    subprocess.run([shell, "-n", installed / shell], check=True, capture_output=True)


def test_the_script_comes_as_json_too(installed: Path) -> None:
    found = json.loads(program.iotrial("completion", "zsh", "--json").stdout)
    assert found == {"schema": 1, "shell": "zsh", "script": (installed / "zsh").read_text()}


@pytest.mark.parametrize("shell", sorted(COMPLETIONS))
def test_packages_have_the_script_that_the_program_prints(installed: Path, shell: str) -> None:
    packaged = ROOT / "iotrial.data/data/share" / COMPLETIONS[shell]
    assert packaged.read_text() == (installed / shell).read_text().rstrip("\n") + "\n", "run `make manual`"


def test_every_kind_of_workload_is_offered() -> None:
    assert [item.value for item in workload_kinds(None, "")] == sorted(kinds())  # type: ignore[arg-type]


def test_the_indexed_commands_are_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPTIONS.read_text() == options_index(), "make manual"
    for verb in ("plan", "try", "fleet"):
        context = click.Context(cli, info_name="iotrial")
        monkeypatch.delenv(COMPLETING, raising=False)
        real = cli.get_command(context, verb)
        monkeypatch.setenv(COMPLETING, "bash_complete")
        indexed = cli.get_command(context, verb)
        assert real is not None
        assert indexed is not None
        for typed in ("--", ""):
            offered = [
                {(item.value, item.help) for item in command.shell_complete(click.Context(command), typed)}
                for command in (real, indexed)
            ]
            assert offered[0] == offered[1]


def test_completing_an_option_imports_no_verb() -> None:
    environment = {
        **os.environ,
        COMPLETING: "bash_complete",
        "COMP_WORDS": "iotrial\nrun\n--mar",
        "COMP_CWORD": "2",
    }
    code = (
        "import sys; sys.argv = ['iotrial']; from iotrial.cli import main\n"
        "try: main()\n"
        "finally: print([m for m in sys.modules if m.startswith(('numpy', 'iotrial.cli.verbs.'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert done.stdout.split("\n")[:2] == [
        "plain\t--margin\tSmallest effect that matters.",
        "plain\t--markdown\tWrite a Markdown report, e.g. for a pull request (-: standard output, instead of text).",
    ]
    assert done.stdout.rstrip().endswith("[]")
