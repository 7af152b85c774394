"""``report --figures``: stand-alone pictures, data files, an index; other files are not touched."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from hostile_trial import ATTACKS, STEERING
from matrix_trials import conducted, text
from report_fixtures import CONDITIONS, all_equivalent, document, effect, factor, study
from store_examples import filled

from iotrial.cli import cli
from iotrial.errors import RequestError, StoreError
from iotrial.report.document import Document
from iotrial.report.figure import svg_of
from iotrial.report.figure_files import INDEX, LIST, write_figures
from iotrial.report.figures import draw_figures
from iotrial.report.jsonreport import report_json
from iotrial.stats.model import Verdict
from iotrial.store import Store
from iotrial.study.model import Role
from values import replace

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas/report.schema.json").read_text())
CSS = Path(__file__).parents[2] / "python/iotrial/report/templates/report.css"
HOSTILE = "".join(ATTACKS)
SVG = "{http://www.w3.org/2000/svg}"


@cache
def small() -> Document:
    return document(
        all_equivalent()[:1], runs={"conditions": CONDITIONS[:1], "blocks": 6, "histograms": False}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("figures") / "new" / "folder"
    write_figures(small(), path)
    return path


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_every_figure_has_two_files_of_one_stable_name(folder: Path) -> None:
    names = {
        "effects",
        "runs-cache-cold-size-4-KiB",
        "distribution-cache-cold-size-4-KiB",
    }
    wanted = {f"{name}.{kind}" for name in names for kind in ("svg", "csv")}
    assert {path.name for path in folder.iterdir()} == wanted | {INDEX, LIST}


def test_an_svg_stands_alone_on_light_paper(folder: Path) -> None:
    for path in folder.glob("*.svg"):
        text = path.read_text("utf-8")
        root = ElementTree.fromstring(text)
        assert root.tag == f"{SVG}svg"
        assert "DOCTYPE" not in text
        assert "var(--" not in text
        links = re.findall(r'(?:href|src)="([^"]*)"', text) + re.findall(r"url\(([^)]*)\)", text)
        assert all(link.startswith("#") for link in links)
        paper = next(iter(root.iter(f"{SVG}rect")))
        assert paper.get("fill") == "#fff"
        assert paper.get("width") == root.get("width")
        assert root.findtext(f"{SVG}title")
        colours = set(re.findall(r'(?:fill|stroke)="(#\w+)"', text))
        assert colours <= set(re.findall(r"--[\w-]+:(#\w+)", CSS.read_text().split("@media")[0]))
    words = "".join(ElementTree.parse(folder / "runs-cache-cold-size-4-KiB.svg").getroot().itertext())
    assert "0777 (reference)" in words, "a picture alone needs its key"
    assert "0444" in words


def test_the_numbers_beside_a_picture_are_plain_csv(folder: Path) -> None:
    with (folder / "runs-cache-cold-size-4-KiB.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 1 + sum(len(block.observations) for block in small().data.blocks)


def test_the_index_names_every_file_with_title_and_sentence(folder: Path) -> None:
    index = (folder / INDEX).read_text()
    linked = set(re.findall(r"\]\(([^)]+)\)", index))
    assert linked == {path.name for path in folder.iterdir()} - {INDEX, LIST}
    assert "## How large is each effect?\n" in index
    assert "Mode 0444 / 0777: 1.001 \\[0.992, 1.010\\], equivalent." in index


@pytest.mark.slow
def test_writing_again_replaces_what_it_made_and_gives_the_same(tmp_path: Path) -> None:
    write_figures(small(), tmp_path)
    first = digests(tmp_path)
    write_figures(small(), tmp_path)
    assert digests(tmp_path) == first
    write_figures(document([], runs={"blocks": 0}), tmp_path)
    assert digests(tmp_path).keys() == first.keys(), "nothing is deleted"
    write_figures(small(), tmp_path)
    assert digests(tmp_path) == first, "what an earlier trial left is still known as made here"


@pytest.mark.parametrize("name", ["effects.svg", "effects.csv", INDEX, LIST])
def test_a_file_that_was_not_made_here_stops_everything(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(RequestError, match=re.escape(f"{name} exists")) as refused:
        write_figures(small(), tmp_path)
    assert refused.value.hint is not None
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}


def test_a_file_that_was_changed_since_is_somebodys(tmp_path: Path) -> None:
    write_figures(small(), tmp_path)
    with (tmp_path / "effects.svg").open("a") as file:
        file.write("<!-- a label moved by hand -->")
    before = digests(tmp_path)
    with pytest.raises(RequestError, match=r"effects\.svg exists"):
        write_figures(small(), tmp_path)
    assert digests(tmp_path) == before


@pytest.mark.parametrize("kind", ["folder", "link", "dangling"])
def test_a_folder_or_a_link_of_a_figures_name_is_not_followed(tmp_path: Path, kind: str) -> None:
    outside = tmp_path / "outside"
    folder = tmp_path / "folder"
    folder.mkdir()
    if kind == "folder":
        (folder / "effects.csv").mkdir()
    else:
        if kind == "link":
            outside.write_text("mine")
        (folder / "effects.csv").symlink_to(outside)
    with pytest.raises(RequestError, match=r"effects\.csv exists"):
        write_figures(small(), folder)
    assert [path.name for path in folder.iterdir()] == ["effects.csv"]
    assert kind != "link" or outside.read_text() == "mine"
    assert kind != "dangling" or not outside.exists()


def test_a_list_that_lies_makes_nobody_elses_file_its_own(tmp_path: Path) -> None:
    mine = tmp_path / "effects.svg"
    mine.write_text("mine")
    for told in ('{"made": {"effects.svg": "x"}}', '{"made": []}', "[]", '{"made": {"effects.svg": [1]}}'):
        (tmp_path / LIST).write_text(told)
        with pytest.raises(RequestError):
            write_figures(small(), tmp_path)
        assert mine.read_text() == "mine"


def test_a_file_is_no_folder_and_a_folder_may_refuse(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(RequestError, match="expected a folder, found a file"):
        write_figures(small(), file)
    assert file.read_text() == "mine"
    with pytest.raises(StoreError, match="cannot write figures to"):
        write_figures(small(), file / "below")


def test_a_kill_while_writing_leaves_nothing_that_a_next_time_would_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from iotrial.report import figure_files

    def fails(figure: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(figure_files, "svg_of", fails)
        with pytest.raises(KeyboardInterrupt):
            write_figures(small(), tmp_path)
    assert not list(tmp_path.glob(".*"))
    write_figures(small(), tmp_path)
    assert (tmp_path / INDEX).exists()


def test_hostile_labels_are_text_in_every_file(tmp_path: Path) -> None:
    labels = ["0777", *ATTACKS[:3]]
    of = study(
        name=HOSTILE, title=HOSTILE, question=HOSTILE, treatment=factor("m", labels, role=Role.TREATMENT)
    )
    effects = [effect(Verdict.SLOWER, 1.2, 1.1, 1.3, level=label, factor="m") for label in labels[1:]]
    condition = {"cache": HOSTILE}
    runs = {"conditions": [condition], "blocks": 4, "histograms": False}
    made = document([replace(one, condition=condition) for one in effects], of=of, runs=runs)
    header = replace(made.trial.header, id=HOSTILE, version=HOSTILE)
    trial = replace(made.trial, header=header)
    write_figures(replace(made, data=replace(made.data, trial=trial)), tmp_path)
    assert len(list(tmp_path.iterdir())) == 3 * 2 + 2
    for path in tmp_path.iterdir():
        told = path.read_text("utf-8").replace("\r\n", "\n")
        assert not [mark for mark in STEERING if mark in told], path.name
        if path.suffix == ".svg":
            tags = {node.tag for node in ElementTree.fromstring(told).iter()}
            assert not {tag for tag in tags if tag.endswith(("script", "image", "foreignObject"))}
        if path.suffix == ".md":
            assert not re.search(r"(?<!\\)<(?:script|img|svg|iframe)", told)


def test_surfaces_stand_side_by_side_in_one_picture() -> None:
    made = conducted(text(primary="write", tests='["write"]'), lambda *_: 1.0, blocks=4)
    surface = next(figure for figure in draw_figures(made).every() if figure.stem == "surface-write")
    picture = ElementTree.fromstring(svg_of(surface))
    words = "".join(picture.itertext())
    for title in ("data=ordered, MiB/s", "data=journal, MiB/s", "time of data=journal / data=ordered"):
        assert title in words
    assert float(picture.get("width", "0")) == 3 * 300 + 24


def test_json_lists_the_files(folder: Path) -> None:
    written = write_figures(small(), folder)
    report = report_json(small(), written)["trial"]
    assert isinstance(report, dict)
    listed = json.loads(json.dumps(report["figures"]))
    assert len(listed) == 3
    assert all(Path(one[kind]).is_file() for one in listed for kind in ("svg", "csv"))
    assert listed[0]["title"] == "How large is each effect?"
    assert "figures" not in report_json(small())["trial"]  # type: ignore[operator]


@pytest.fixture
def verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    monkeypatch.setenv("IOTRIAL_STORE", str(tmp_path / "state" / "trials.db"))
    monkeypatch.chdir(tmp_path)
    with Store.open(tmp_path / "state" / "trials.db") as store:
        filled(store)
    return lambda *words: cli.main(list(words), prog_name="iotrial", standalone_mode=False)


@pytest.mark.slow
def test_the_verb_writes_them_and_says_where(
    verb: Callable[..., object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    verb("report", "--figures", "drawn")
    number = len(list((tmp_path / "drawn").glob("*.svg")))
    assert number > 0
    assert f"{number} figures in drawn; index.md lists them" in capsys.readouterr().out
    verb("report", "last", "--figures", "drawn", "--json")
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    assert len(report["trial"]["figures"]) == number


def test_the_verb_writes_nothing_where_the_folder_is_a_file(
    verb: Callable[..., object], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RequestError, match="expected a folder, found a file"):
        verb("report", "--figures", "file", "--html", "page.html", "--markdown", "page.md")
    assert {path.name for path in tmp_path.iterdir()} == {"state", "file"}
