"""What is uploaded to a package index: built twice, in two clones, and compared byte by byte."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
#: minutes, on two busy processors
BUILDS_WITHIN_S = 1800


def test_every_file_that_names_the_version_names_the_same() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"] == version
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    assert f"image: iotrial:{version}\n" in (ROOT / "docs/examples/kubernetes-job.yaml").read_text()


@pytest.mark.slow
def test_the_citation_is_valid(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    install = [tmp_path / "bin/python", "-m", "pip", "install", "-q", "cffconvert"]
    subprocess.run(install, check=True)
    check = [tmp_path / "bin/cffconvert", "--validate", "--infile"]
    subprocess.run([*check, ROOT / "CITATION.cff"], check=True)
    wrong = tmp_path / "CITATION.cff"
    wrong.write_text((ROOT / "CITATION.cff").read_text().replace("title:", "heading:"))
    assert subprocess.run([*check, wrong], check=False, capture_output=True).returncode != 0


@pytest.mark.long
@pytest.mark.alone  # it builds in one folder, at one place
def test_two_clones_give_the_same_bytes(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        clone, into = tmp_path / name, tmp_path / f"{name}-release"
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        done = subprocess.run(
            [clone / "scripts/release", into],
            capture_output=True,
            text=True,
            timeout=BUILDS_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("PASSED") == 2, "twine check"
        made.append(
            {path.name: path.read_bytes() for path in into.iterdir() if path.name.startswith("iotrial-")}
        )
        bills = {path.name: json.loads(path.read_text()) for path in (into / "sbom").iterdir()}
        assert {bill["bomFormat"] for bill in bills.values()} == {"CycloneDX"}
        parts = {one["name"] for one in bills["iotrial-python.cyclonedx.json"]["components"]}
        assert {"numpy", "click", "distributed"} <= parts
    assert len(made[0]) == 2
    assert made[0] == made[1]
