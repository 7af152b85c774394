"""Without matplotlib, an optional extra: reports are complete except for their pictures, and say what to install."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest
from matrix_trials import conducted, text
from report_fixtures import CONDITIONS, all_equivalent, document

from iotrial.errors import MissingTool
from iotrial.report.document import Document
from iotrial.report.figure_files import write_figures
from iotrial.report.render import html_report

INSTALL = "pip install 'iotrial[figures]'"


@pytest.fixture(autouse=True)
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@cache
def small() -> Document:
    return document(
        all_equivalent()[:1], runs={"conditions": CONDITIONS[:1], "blocks": 6, "histograms": False}
    )


def test_a_page_names_the_extra_in_place_of_each_figure_and_keeps_sentences_and_data() -> None:
    page = html_report(small())
    assert "<svg role" not in page
    assert (
        page.count(f"Not drawn: this needs matplotlib (<code>{INSTALL.replace(chr(39), '&#x27;')}</code>)")
        > 2
    )
    assert page.count(">data, CSV</a>") > 2
    assert "<figcaption>" in page


def test_a_page_with_surfaces_has_no_script_that_would_turn_them() -> None:
    page = html_report(conducted(text(), lambda *_: 1e-3, blocks=20))
    assert "data-scene" in page
    assert "<script" not in page


def test_figures_as_files_are_refused_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingTool, match="matplotlib") as caught:
        write_figures(small(), tmp_path / "figures")
    assert caught.value.hint == INSTALL
    assert caught.value.exit_status == 2
    assert not (tmp_path / "figures").exists()
