"""The notebooks run from top to bottom and print what is stored in them; nothing of a machine or a user is in them."""

from __future__ import annotations

import csv
import getpass
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebooks"
FILES = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 300_000
#: a path from the root with at least two parts; a tag's end and an address of a page are none
ABSOLUTE = re.compile(r"(?<![\w./:<~-])/[A-Za-z]\w*/\w+")


def said(notebook: Any) -> list[tuple[int, str]]:
    """What each cell printed or gave as text, by its number; figures and HTML are drawn anew and not compared."""
    found = []
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            if output.output_type != "display_data" and getattr(output, "name", "") != "stderr":
                found.append((number, " ".join(text.split())))
    return found


def texts(notebook: Any) -> str:
    """All that can be read in it: sources and outputs, without figures."""
    found = []
    for cell in notebook.cells:
        found.append(cell.source)
        for output in cell.get("outputs", []):
            found.append(output.get("text", ""))
            found += [text for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
    return "\n".join(found)


def test_there_are_notebooks() -> None:
    assert [file.stem for file in FILES] == ["figure-of-your-own", "ten-in-a-row", "your-own-numbers"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_notebook_is_clean(file: Path) -> None:
    text = file.read_text()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert len(text) < LARGEST
    readable = texts(notebook)
    assert not ABSOLUTE.findall(readable)
    for name in {socket.gethostname(), getpass.getuser()} - {"root", "localhost"}:
        assert not re.search(rf"\b{re.escape(name)}\b", readable), name
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert outputs
    assert all(output.output_type != "error" and output.get("name") != "stderr" for output in outputs)
    assert notebook.cells[0].cell_type == "markdown"
    assert all(cell.metadata == {} for cell in notebook.cells)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_links_of_a_notebook_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", file.read_text()):
        assert (FOLDER / target).exists(), target


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_notebook_gives_what_is_stored_in_it(file: Path, state: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    fresh = runpy.run_path(str(ROOT / "scripts" / "notebooks"))["executed"](file)
    assert said(fresh) == said(nbformat.read(file, as_version=4))


def test_the_script_that_measured_the_pairs_draws_their_order() -> None:
    words = [sys.executable, str(FOLDER / "measure_pairs.py"), "40", "true", "sleep 0.005"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["block"] for row in rows] == [str(i) for i in range(40)]
    assert {row["first"] for row in rows} == {"level", "reference"}  # the same 40 times: once in 5e11
    assert all(float(row["level_s"]) > 0.005 for row in rows)
    own = (FOLDER / "pairs.csv").read_text().splitlines()
    assert own[0] == done.stdout.splitlines()[0]
    assert len(own) == 41
