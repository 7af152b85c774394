"""The documentation is executed: every command line in it is tried, every study in it is planned."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import program

ROOT = Path(__file__).parents[2]
PAGES = [
    p
    for p in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
    if p.name not in ("CHANGELOG.md", "METHOD.md", "method-details.md", "BENCHMARKS.md")
]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def blocks(kind: str) -> list[tuple[str, str]]:
    return [
        (page.name, text) for page in PAGES for name, text in FENCE.findall(page.read_text()) if name == kind
    ]


def commands() -> list[tuple[str, list[str]]]:
    found = []
    for page, text in blocks("console"):
        if "docs/examples/" in text:
            continue  # run as they stand, in test_first_look.py
        for line in text.splitlines():
            if line.startswith("$ iotrial "):
                found.append((page, shlex.split(line[2:], comments=True)[1:]))
    return found


def iotrial(*words: str) -> subprocess.CompletedProcess[str]:
    return program.iotrial(*words, timeout=120)


@pytest.mark.parametrize(
    ("page", "words"), commands(), ids=lambda value: " ".join(value) if isinstance(value, list) else value
)
def test_every_command_in_the_documentation_is_understood(page: str, words: list[str], state: Path) -> None:
    verb, rest = words[0], words[1:]
    if "--device" in rest:  # an example's disk, which is not there
        done = iotrial("plan", *rest)
        assert done.returncode == 2
        assert "--device /dev/sdx" in done.stderr or "needs root" in done.stderr
    elif verb in ("ci", "doctor", "serve", "fleet") or {"--pilot", "--rehearse"} & set(
        rest
    ):  # understood, without being done
        done = iotrial(verb, *rest, "--help")
        assert done.returncode == 0, done.stderr
    elif verb in ("try", "best"):
        done = iotrial(verb, "--plan", *rest)
        assert done.returncode == 0 or "needs root" in done.stderr, done.stderr
    elif verb == "run":  # what it would do, without doing it
        done = iotrial("plan", *rest)
        assert done.returncode == 0, done.stderr
    elif verb == "report" and rest and rest[0].endswith(".iotrial"):
        assert (ROOT / rest[0]).is_file()  # what it says is compared in test_first_look.py
    elif verb in ("report", "compare", "refine", "resume", "continue", "export", "import"):
        done = iotrial(verb, *rest)
        assert done.returncode == 2, done.stderr  # there is no trial yet, and that is what it must say
        assert re.search("No such file" if verb == "import" else "no trials? yet", done.stderr), done.stderr
    else:
        done = iotrial(verb, *rest)
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_every_option_in_a_workflow_is_one_of_its_verb(page: str, text: str) -> None:
    folded = re.sub(r">\n\s+", "", text)
    commands = re.findall(r"run: (iotrial .*(?:\n +--.*)*)", folded)
    verb = "run" if "study:" in text else "ci"  # of action.yml
    commands += [f"iotrial {verb} {options}" for options in re.findall(r"arguments: (.*)", text)]
    assert commands
    for command in commands:
        done = iotrial(*shlex.split(command)[1:], "--help")  # an option that is none is refused all the same
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "text"), [b for b in blocks("toml") if "[study]" in b[1]])
def test_every_study_in_the_documentation_can_be_planned(
    page: str, text: str, state: Path, tmp_path: Path
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(text)
    done = iotrial("plan", str(file), "--trust")
    if "is not installed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "text"), [*blocks("sh"), *blocks("console")])
def test_a_command_can_be_pasted_into_a_shell(page: str, text: str) -> None:
    lines = [line.removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines()]
    for line in lines:
        if line.startswith("iotrial "):
            done = subprocess.run(["sh", "-n", "-c", line], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page}: {line}: {done.stderr}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", one)) for one in headings]
    written = set(re.findall(r'<a id="([^"]+)">', text))
    return {one.strip().lower().replace(" ", "-") for one in plain} | written


def test_links_between_pages_lead_somewhere() -> None:
    # head.md is copied into pages of another folder
    pages = [*ROOT.glob("*.md"), *(p for p in (ROOT / "docs").rglob("*.md") if p.name != "head.md")]
    dead = []
    for page in pages:
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", page.read_text()):
            there = page.parent / target if target else page
            if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
                dead.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert not dead


def test_pages_named_by_help_and_messages_exist() -> None:
    named = {
        name
        for source in (ROOT / "python" / "iotrial").rglob("*.py")
        for name in re.findall(r"\bdocs/[\w./-]+\.md\b", source.read_text())
    }
    assert named
    assert not {name for name in named if not (ROOT / name).exists()}


@pytest.mark.parametrize(
    "words",
    [("--help",), ("list",), ("show", "mount/atime"), ("plan", "files/permissions", "--lab", "directory")],
)
def test_what_measures_and_reports_nothing_loads_nothing_heavy(words: tuple[str, ...], state: Path) -> None:
    code = (
        f"import sys\nsys.argv = ['iotrial', *{words!r}]\nfrom iotrial.cli import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "heavy = {'numpy', 'pydantic', 'rich', 'jinja2', 'sqlite3', 'tomlkit'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_readme_opens_with_the_two_commands_that_do_all_the_set_up() -> None:
    head = (ROOT / "README.md").read_text().splitlines()[:15]
    assert any("make trial" in line for line in head)
    assert any("make test" in line for line in head)


def pythons() -> list[tuple[str, list[tuple[str, str]]]]:
    """By page: its blocks of Python in order, each with the block of text behind it, which is what it prints."""
    found = []
    for page in PAGES:
        fences = FENCE.findall(page.read_text())
        pairs = [
            (text, following[1] if following[0] == "text" else "")
            for (kind, text), following in zip(fences, [*fences[1:], ("", "")], strict=False)
            if kind == "python"
        ]
        if pairs:
            found.append((page.name, pairs))
    return found


@pytest.mark.parametrize(
    ("page", "pairs"), pythons(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_python_in_the_documentation_prints_what_stands_below_it(
    page: str, pairs: list[tuple[str, str]], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for code, wanted in pairs:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, page, "exec"), names)
        assert said.getvalue().strip() == wanted.strip()
