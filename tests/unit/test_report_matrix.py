"""Matrix reports: rates and ratios against closed forms, marks that need no colour, holes, surface plots."""

from __future__ import annotations

import io
import math
import re

import pytest
from matrix_trials import KIB, conducted, text
from rich.console import Console

from iotrial.report.blocks import Section, Table, View, shown_in
from iotrial.report.document import Document, build_document
from iotrial.report.matrices import cell_text, matrices_of, matrix_sentence, table_of
from iotrial.report.matrix_figures import cell_opacity, matrix_figures
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.report.scene import Box, can_be_drawn, named
from iotrial.report.trial_blocks import trial_report
from values import replace


def time(treatment: str, test: str, file: int, record: int) -> float:
    """Return the time of a test.

    1 GiB/s at 4 KiB, faster with larger records. journal: writes take 1.5 times as long, large reads half as
    long.
    """
    seconds = file / (1024 * KIB) * (4 / record) ** 0.25
    if treatment == "data=journal":
        seconds *= 1.5 if test == "write" else 0.5 if (test, record) == ("read", 512) else 1.0
    return seconds


@pytest.fixture(scope="module")
def document() -> Document:
    return conducted(text(), time, sd=0.004)


def test_each_test_is_a_table_of_file_sizes_by_record_sizes(document: Document) -> None:
    (matrix,) = document.matrices
    assert matrix.files == (64 * KIB, 256 * KIB, 1024 * KIB)
    assert matrix.records == (4 * KIB, 64 * KIB, 512 * KIB)
    assert (matrix.reference, matrix.level) == ("data=ordered", "data=journal")
    assert [grid.test for grid in matrix.tests] == ["write", "read", "fread"]
    for grid in matrix.tests:
        assert set(grid.cells) == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)}
    assert matrix.cells == 7


def test_rates_are_kib_a_second_of_the_median_run(document: Document) -> None:
    """Both treatments share the level of a block, so the ratio of their rates is the inverse ratio of their times."""
    (matrix,) = document.matrices
    write = matrix.tests[0]
    for reference, level in write.rates.values():
        assert reference / level == pytest.approx(1.5, rel=0.02)
    quiet = conducted(text(files='["1 MiB"]', records='["4 KiB"]', primary="write"), time, sd=0.0, blocks=20)
    values = sorted(
        run.responses["write_time"]
        for block in quiet.data.blocks
        for run in block.observations
        if run.arm == "data=ordered"
    )
    middle = (values[9] + values[10]) / 2
    assert quiet.matrices[0].tests[0].rates[0, 0][0] == pytest.approx(1024 / middle)


def test_every_cell_says_its_ratio_and_its_verdict_without_colour(document: Document) -> None:
    (matrix,) = document.matrices
    write, read, fread = (table_of(matrix, grid, valid=True) for grid in matrix.tests)
    assert write[0] == ["write", "4 KiB", "64 KiB", "512 KiB"]
    assert [row[0] for row in write[1:]] == ["64 KiB", "256 KiB", "1 MiB"]
    assert write[1][3] == "–", "a record of 512 KiB does not fit into 64 KiB"
    ratios = [cell for row in write[1:] for cell in row[1:] if cell != "–"]
    assert all(re.fullmatch(r"1\.(49|50|51) ▲", cell) for cell in ratios)
    assert re.fullmatch(r"0\.50 ▼", read[3][3])
    others = [cell for row in fread[1:] for cell in row[1:] if cell != "–"]
    assert all(re.fullmatch(r"(1\.00|0\.99|1\.01) ≈", cell) for cell in others)
    assert matrix_sentence(matrix) == (
        "21 comparisons of data=journal with data=ordered: 1 faster, 7 slower, 13 typical runs equivalent"
    )


def test_an_undecided_cell_is_marked_as_such_and_an_invalid_trial_has_no_marks(document: Document) -> None:
    early = conducted(text(), time, blocks=4)
    grid = early.matrices[0].tests[0]
    assert cell_text(grid.cells[0, 0], valid=True).endswith(" ·")
    assert cell_text(document.matrices[0].tests[0].cells[0, 0], valid=False) == "1.50"


def test_text_and_markdown_have_a_table_of_all_tests(document: Document) -> None:
    out = io.StringIO()
    print_report(document, Console(file=out, width=80), full=True)
    printed = out.getvalue()
    assert "21 comparisons of data=journal with data=ordered" in printed
    assert re.search(r"1 MiB +1\.50 ▲ +1\.50 ▲ +1\.50 ▲", printed)
    assert re.search(r"64 KiB +1\.50 ▲ +1\.50 ▲ +– *\n", printed)
    assert max(map(len, printed.split("\n"))) <= 80
    marked = markdown_report(document)
    assert "| test, file size | 4 KiB | 64 KiB | 512 KiB |\n|---|---:|---:|---:|\n" in marked
    assert "| write 64 KiB | 1.50 ▲ | 1.50 ▲ | – |" in marked
    assert "<summary>Effects</summary>" in marked


def test_on_one_screen_a_matrix_has_a_line_for_each_test_with_its_verdicts_and_its_largest_ratios(
    document: Document,
) -> None:
    (section,) = (block for block in trial_report(document).blocks if getattr(block, "id", "") == "matrix")
    assert isinstance(section, Section)
    (short,) = shown_in(section.blocks, View.SHORT)
    assert isinstance(short, Table)
    tests = document.matrices[0].tests
    assert [row.cells[0] for row in short.rows] == [grid.test for grid in tests]
    for row, grid in zip(short.rows, tests, strict=True):
        assert sum(int(number) for number in re.findall(r"\d+", str(row.cells[1]))) == len(grid.cells)
        largest = max(one.effect.value or 0.0 for one in grid.cells.values())
        assert float(str(row.cells[3])) == pytest.approx(largest, rel=0.01)


@pytest.mark.slow
def test_the_page_has_maps_surfaces_and_numbers_that_a_reader_without_sight_is_told(
    document: Document,
) -> None:
    page = html_report(document)
    section = page[page.index('<section id="matrix">') : page.index('<section id="effects">')]
    drawn = re.findall(r'<svg role="img" aria-label="([^"]*)"', section)
    # One map for wide and one for narrow pages; for each test both rates and their ratio.
    assert len(drawn) == 2 + 3 * 3
    assert "21 comparisons of data=journal with data=ordered" in drawn[0]
    assert all("no difference" in label for label in drawn[2:])
    assert not re.search(r"#0[0-9a-f]{5}\b", section), "no colour that the style sheet does not know"
    assert section.count("<details") == 3
    assert "1.50 ▲" in section
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.long
def test_labels_of_a_stranger_stay_labels(document: Document) -> None:
    evil = text().replace("data=ordered", "<script>x</script>")
    evil = evil.replace('knob = "mount.option"', 'knob = "environment.variable"\nvariable = "V"')
    page = html_report(conducted(evil, lambda *_: 1.0, blocks=8))
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, flags=re.DOTALL)
    assert [text.startswith('"use strict";') for text in scripts] == [True], "the one that turns surfaces"
    assert "&lt;script&gt;" in page


def test_several_comparisons_are_matrices_of_their_own() -> None:
    more = text(primary="write", tests='["write"]').replace(
        '[[factor]]\nname = "file_size"',
        '[[factor]]\nname = "cpu"\nknob = "process.nice"\nlevels = ["0", "5"]\nrole = "condition"\n'
        '[[factor]]\nname = "file_size"',
    )
    made = conducted(more, time, blocks=4)
    assert [matrix.title for matrix in made.matrices] == [
        "journal data=journal against data=ordered, cpu 0",
        "journal data=journal against data=ordered, cpu 5",
    ]
    assert all(len(matrix.tests[0].cells) == 7 for matrix in made.matrices)
    assert len(matrix_figures(made)) == 2


def test_one_column_has_maps_and_no_surface() -> None:
    line = conducted(text(records='["4 KiB"]', primary="write"), time, blocks=10)
    assert not can_be_drawn(line.matrices[0])
    (figures,) = matrix_figures(line)
    assert figures.tests[0].surfaces is None
    assert figures.tests[0].scenes == ()
    assert len(figures.tests[0].rows) == 3


def test_a_trial_without_a_matrix_has_none(document: Document) -> None:
    from report_fixtures import all_equivalent
    from report_fixtures import document as plain

    other = plain(all_equivalent())
    assert other.matrices == ()
    assert '<section id="matrix">' not in html_report(other)
    assert matrices_of(document.data, ()) == ()


def test_void_blocks_are_in_no_rate(document: Document) -> None:
    blocks = tuple(
        replace(block, void="cold_was_not_cold") if block.index else block for block in document.data.blocks
    )
    data = replace(document.data, blocks=blocks)
    made = build_document(data, document.analysis)
    first = next(
        run
        for block in blocks
        if block.index == 0
        and "file_size=1 MiB,journal" not in block.condition
        and "512 KiB" in block.condition
        for run in block.observations
        if run.arm == "data=ordered"
    )
    rate = made.matrices[0].tests[0].rates[2, 2][0]
    assert rate == pytest.approx(1024 / first.responses["write_time"])


@pytest.mark.parametrize(
    ("ratio", "wanted"), [(1.0, 0.10), (2.0, 0.55), (0.5, 0.55), (8.0, 0.55), (math.sqrt(2), 0.325)]
)
def test_colour_grows_with_the_logarithm_of_the_ratio(ratio: float, wanted: float) -> None:
    assert cell_opacity(ratio, quiet=False) == pytest.approx(wanted)
    assert cell_opacity(ratio, quiet=True) == pytest.approx(0.10)


def test_a_surface_lies_on_the_page_as_its_projection_says() -> None:
    """Straight lines stay straight, heights are equal steps upwards, rows go back and up, columns right and down."""
    box = Box(rows=3, columns=3, low=0.0, high=2.0)
    x0, y0 = box.at(0, 0, 0.0)
    assert (x0, y0) == (0.0, 0.0)
    x1, y1 = box.at(0, 1, 0.0)
    x2, y2 = box.at(0, 2, 0.0)
    assert (2 * x1, 2 * y1) == pytest.approx((x2, y2))
    assert x2 > 0 > y2
    back = box.at(2, 0, 0.0)
    assert back[0] > 0
    assert back[1] > 0
    heights = [box.at(1, 1, z) for z in (0.0, 1.0, 2.0)]
    assert heights[2][1] - heights[1][1] == pytest.approx(heights[1][1] - heights[0][1])
    assert len({x for x, _ in heights}) == 1
    corner = box.at(2, 2, 0.0)
    assert corner == pytest.approx((x2 + back[0], y2 + back[1]))


@pytest.mark.parametrize(
    ("count", "wanted"),
    [
        (1, [0]),
        (2, [0, 1]),
        (4, [0, 1, 2, 3]),
        (5, [0, 2, 4]),
        (6, [0, 5]),
        (7, [0, 2, 4, 6]),
        (13, [0, 4, 8, 12]),
    ],
)
def test_names_along_an_edge_stand_at_even_steps_and_at_both_ends(count: int, wanted: list[int]) -> None:
    assert named(count) == wanted
