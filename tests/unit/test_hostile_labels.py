"""A trial with attacks in every text, in every report: nothing controls the terminal, runs, links or leaves its folder."""

from __future__ import annotations

import ast
import io
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hostile_trial import ATTACKS, STEERING, attacks, hostile_document
from markdown_it import MarkdownIt
from rich.console import Console

import iotrial.cli
from iotrial.cli.finish import report_path, write_page
from iotrial.cli.output import report_error, tell
from iotrial.errors import RequestError
from iotrial.report.document import Document, rerun_command
from iotrial.report.jsonreport import report_json
from iotrial.report.live import PlainView, TerminalView
from iotrial.report.progress import EffectLine, Progress
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.terminal import escape, escape_lines
from values import replace

SGR = re.compile(r"\x1b\[[0-9;]*m")  # colours and weights, as rich writes them itself


@pytest.fixture(scope="module")
def hostile() -> Document:
    return hostile_document()


@pytest.fixture(scope="module")
def page(hostile: Document) -> str:
    return html_report(hostile)


def steering(text: str) -> set[str]:
    return {f"U+{ord(character):04X}" for character in text if character in STEERING}


@pytest.mark.parametrize("colours", [None, "truecolor"])
@pytest.mark.parametrize("width", [40, 80, 300])
def test_the_text_report_holds_nothing_that_steers_a_terminal(
    hostile: Document, width: int, colours: str | None
) -> None:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=colours is not None, color_system=colours)  # type: ignore[arg-type]
    print_report(hostile, console, html_path="/reports/\x1b[2J.html")
    assert not steering(SGR.sub("", out.getvalue()))
    assert "[bold red]" in out.getvalue() or width == 40  # markup stays text
    assert "\x1b]8" not in out.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_live_view_holds_nothing_that_steers_a_terminal(*, terminal: bool) -> None:
    text = attacks()
    lines = tuple(
        EffectLine(escape(attack), attack, next(text), next(text), 0.5, 0.4, 0.6, 3, "faster")
        for attack in ATTACKS
    )
    progress = Progress(1, next(text), 3.0, 9.0, {escape(a): 1 for a in ATTACKS}, 1, 1, lines, next(text))
    out = io.StringIO()
    console = Console(file=out, width=120, height=60, force_terminal=terminal, color_system=None)
    view = TerminalView(console) if terminal else PlainView(console)
    with view:
        for attack in ATTACKS:
            view.say(attack)
        view.update(progress)
    # the view redraws its table in place: cursor up, then clear below
    drawn = re.sub(r"\r\x1b\[[0-9]+A\x1b\[J", "", out.getvalue())
    assert not steering(SGR.sub("", drawn))


def test_markdown_makes_no_link_image_code_or_tag_of_a_label(hostile: Document) -> None:
    text = markdown_report(hostile)
    assert not steering(text)
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in (*tokens, *inline)}
    assert not kinds & {"link_open", "image", "fence", "code_block", "s_open", "em_open", "hr"}
    assert {child.content for child in inline if child.type == "html_inline"} <= {"<!-- -->"}
    tags = " ".join(token.content for token in tokens if token.type == "html_block")
    assert set(re.findall(r"</?([a-z]+)", re.sub(r"&lt;.*?&gt;", "", tags))) <= {"details", "summary"}
    assert len([child for child in inline if child.type == "code_inline"]) == 1  # the command to run it again
    assert not re.search(
        r"(?<!<!-- -->)(?:@octocat|#123)|www\.evil|http://evil", text.rpartition("Run again")[0]
    )


class Tags(HTMLParser):
    """Collects every tag with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_html_has_no_tag_attribute_or_address_that_comes_from_a_label(page: str) -> None:
    assert not steering(page)
    page.encode("utf-8")
    parser = Tags()
    parser.feed(page)
    tags = {tag for tag, _ in parser.found}
    assert not tags & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "input",
        "base",
        "image",
        "foreignobject",
    }
    for tag, attributes in parser.found:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("href", "src", "xlink:href", "action", "style", "clip-path"):
            value = attributes.get(name) or ""
            assert "evil" not in value, (tag, name)
            assert "owned" not in value, (tag, name)
            saved = "download" in attributes and re.fullmatch(
                r"[\w.-]+\.csv(\.gz)?", attributes["download"] or ""
            )
            kept = (
                "#",
                *(("data:text/csv;charset=utf-8;base64,", "data:application/gzip;base64,") if saved else ()),
            )
            assert name != "href" or value in ("", "data:,") or value.startswith(kept), (tag, value)
    ids = [attributes["id"] for _, attributes in parser.found if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_figures_show_a_formula_as_it_was_written(page: str) -> None:
    assert "$\\frac{" in page
    assert "49" not in re.findall(r"\{\{ 7\*7 \}\}|49 \{%", page)


def test_json_is_ascii_and_gives_every_label_back(hostile: Document) -> None:
    text = json.dumps(report_json(hostile), allow_nan=False)
    assert text.isascii()
    assert not steering(text)
    assert json.loads(text)["trial"]["title"] == "".join(ATTACKS)


def test_the_command_to_run_again_is_one_run_of_iotrial_whatever_a_stored_trial_says(
    hostile: Document,
) -> None:
    words = shlex.split(hostile.rerun)
    assert words[:2] == ["iotrial", "run"]
    assert words[-2] == "--seed"
    assert len(words) == 2 + len(ATTACKS) + 2


def test_a_command_that_somebody_else_tried_is_not_given_to_run_again(hostile: Document) -> None:
    trial = hostile.data.trial
    options = {"argv": ["iotrial", "try", "--", "rm", "x"]}

    def again(*, trusted: bool) -> str:
        header = replace(trial.header, options=options, study=replace(trial.header.study, trusted=trusted))
        return rerun_command(replace(trial, header=header))

    assert again(trusted=True).endswith("-- rm x")
    assert again(trusted=False) == "iotrial run --like FILE --on FOLDER"


@pytest.mark.parametrize(
    "name",
    ["../../x", "..", ".", "", "/etc/passwd", "a\0b", "x" * 5000, "\ud800", "-rf", "\x1b[2J", "a/../../b"],
)
def test_the_report_file_stays_in_its_folder_whatever_the_study_is_called(
    hostile: Document, state: Path, name: str
) -> None:

    data = hostile.data
    header = replace(data.trial.header, study=replace(data.trial.header.study, name=name))
    named = replace(hostile, data=replace(data, trial=replace(data.trial, header=header)))
    path = report_path(named)
    assert path.parent == state / "reports"
    assert re.fullmatch(r"12-[A-Za-z0-9][A-Za-z0-9._-]*\.html", path.name)
    assert len(path.name) < 100
    write_page("text", named)
    assert path.read_text() == "text"


def test_a_link_in_the_place_of_the_report_is_not_written_through(
    hostile: Document, state: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (state / "reports").mkdir(parents=True)
    report_path(hostile).symlink_to(victim)
    with pytest.raises(RequestError, match="is a link"):
        write_page("report", hostile)
    assert victim.read_text() == "precious"


def test_errors_show_what_would_steer_and_cannot_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for attack in ATTACKS:
        report_error("failed", f"reading {attack}", attack, as_json=False)
        report_error("failed", f"reading {attack}", attack, as_json=True)
    report_error("failed", "x\nhint: rm -rf /\niotrial: y", None, as_json=False)
    err = capsys.readouterr().err
    assert not steering(err)
    assert not [line for line in err.splitlines() if line.startswith("hint: rm")]


def test_what_a_verb_tells_keeps_its_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    tell("a\tb\n" + "".join(ATTACKS))
    out = capsys.readouterr().out
    assert out.startswith("a       b\n")
    assert not steering(out)


def test_no_verb_prints_text_by_another_way() -> None:
    """``click.echo`` and ``print`` are for JSON and constant text; everything else goes through ``tell``."""
    for file in Path(iotrial.cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "click.echo",
                "print",
                "click.secho",
            ):
                text = ast.unparse(node.args[0])
                safe = (
                    "json.dumps(",
                    "json_text(",
                    "escape_lines(",
                    "context.get_usage(",
                    "f'Error: {escape_lines(",
                )
                safe += ("_escaped(",)  # escapes, and wraps
                safe += ("report.json()",)  # this is json.dumps, or its cached result
                safe += ("script(shell)",)  # built from the program's own text, for a shell to read verbatim
                known = file.name in ("errors.py", "leftovers.py") or isinstance(node.args[0], ast.Constant)
                assert known or text.startswith(safe), f"{file.name}: {text}"


@pytest.mark.parametrize(
    "code", [0x00, 0x1B, 0x7F, 0x85, 0x9B, 0xAD, 0x200B, 0x200F, 0x2028, 0x202E, 0x2066, 0xFEFF, 0xE0041]
)
def test_a_character_that_steers_or_hides_is_told_by_its_number(code: int) -> None:
    found = escape(f"a{chr(code)}b")
    assert found.isprintable()
    assert f"{code:x}" in found
    assert escape_lines(f"a{chr(code)}\nb") == found[:-1] + "\nb"
