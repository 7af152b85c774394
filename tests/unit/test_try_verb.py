"""``iotrial try`` with what people type wrong: each refusal says what to type instead, before anything is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.cli import main


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr("sys.argv", ["iotrial", "try", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("read_ahead_kb=16,1024", "ls", "a b"), "hint: iotrial try read_ahead_kb=16,1024 -- ls 'a b'"),
        (("read_ahead_kb=16,1024", "ls", "-la"), "hint: iotrial try read_ahead_kb=16,1024 -- ls -la"),
        (("noatime,relatime", "--", "ls"), "did you mean mount.atime=noatime,relatime?"),
        (("env.A=1,2",), "two dashes"),
        (("-L", "n=1,2", "--", "ls"), "write {n} where the value goes"),
        (("-L", "n", "1,2", "--response", "x=regex:n=(", "--", "echo", "{n}"), "not a regular expression"),
        (("-L", "n", "1,2", "--response", "x=regex:n=.", "--", "echo", "{n}"), "expected one group"),
    ],
)
def test_a_hint_says_what_to_type(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], hint: str
) -> None:
    assert hint in refused(capsys, monkeypatch, *words)


def test_an_option_that_is_mistyped_is_no_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(capsys, monkeypatch, "env.A=1,2", "--nosuch", "--", "ls", "-la")
    assert "No such option" in said
    assert "--nosuch" in said


def test_a_file_that_is_no_program_is_told_from_one_that_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "script"
    script.write_text("true\n")
    assert f"hint: chmod +x {script}" in refused(
        capsys, monkeypatch, "env.A=1,2", "--in", str(tmp_path), "--", str(script)
    )
    assert "does not exist" in refused(
        capsys, monkeypatch, "env.A=1,2", "--in", str(tmp_path), "--", f"{script}s"
    )
