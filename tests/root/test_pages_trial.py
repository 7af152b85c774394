"""Trials of kind pages: a server that the study starts, and one that is there already."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from running import failures_of, iotrial, of_a_stranger, run_json, stored_runs, write_study

from web_server import fnv1a, serving, whole

pytestmark = pytest.mark.root

OWN = """
[study]
name = "own"
question = "Does the word matter?"
account = false
[lab]
size = "32 MiB"
[budget]
time = "60 s"
blocks = 2
[[factor]]
name = "word"
knob = "command.argument"
placeholder = "{word}"
levels = ["left", "right", "broken"]
[[workload]]
name = "site"
kind = "pages"
pages = ["/same.txt", "/word.php", "/who.php"]
clients = 2
serve = ["php", "-n", "-S", "{address}"]
serve_environment = { WORD = "{word}", PHP_CLI_SERVER_WORKERS = "2" }
make = ["php", "-n"]
make_input = '''<?php
file_put_contents('same.txt', 'always');
file_put_contents('word.php', '<?php if (getenv("WORD") == "broken") http_response_code(500); echo getenv("WORD");');
file_put_contents('who.php', '<?php echo fileowner("/proc/self"), " ", getmyuid(), " ", basename(dirname(__DIR__));');
'''
"""


@pytest.mark.skipif(shutil.which("php") is None, reason="no php: apt-get install php-cli")
def test_a_study_makes_a_site_serves_it_to_each_arm_and_compares_what_came(
    state: Path, tmp_path: Path
) -> None:
    study = of_a_stranger(write_study(tmp_path, OWN))
    refused = iotrial("run", study, check=2)
    assert "has php run a text of the study" in refused.stderr
    report = run_json(study, "--trust")
    runs = [run for run in stored_runs(state) if run["failure"] is None]
    by_arm = {run["arm"]: run for run in runs}
    assert set(by_arm) >= {"left", "right"}
    nobody = fnv1a(b"65534 65534 own")  # who serves, and whose the site is
    for arm in ("left", "right"):
        assert by_arm[arm]["checks"]["pages"]["body"] == [fnv1a(b"always"), fnv1a(arm.encode()), nobody]
        assert by_arm[arm]["evidence"]["responses"] == 6
        assert by_arm[arm]["evidence"]["server_processes"] == 3  # the master and its two workers
        assert by_arm[arm]["responses"]["server_cpu"] > 0
        assert by_arm[arm]["responses"]["server_memory"] > 1 << 20
    assert {failure.partition(" (")[0] for failure in failures_of(state)} == {
        "/word.php: the server answered 500, wanted 200"
    }
    assert {effect["failures"] > 0 for effect in report["effects"] if effect["level"] == "broken"} == {True}
    said = " ".join(iotrial("report", "last").stdout.split())
    assert (
        "The pages differ: at right the bodies of 1 of 3 pages are not what they are at left: /word.php."
        in said
    )


def test_two_servers_that_are_there_already_are_compared_page_by_page(state: Path, tmp_path: Path) -> None:
    text = """
[study]
name = "two"
question = "Which?"
[lab]
kind = "directory"
[budget]
blocks = 2
[[factor]]
name = "server"
knob = "work.option"
option = "server"
levels = ["old", "new"]
[[workload]]
name = "site"
kind = "pages"
pages = ["/{1..3}"]
ignore = ["n=* "]
"""
    study = write_study(tmp_path, text)
    with (
        serving(lambda c, path, n: c.sendall(whole(f"n={n} {path}".encode())) is None) as old,
        serving(lambda c, path, n: c.sendall(whole(f"n={n} {path}".encode())) is None) as new,
    ):
        where = ("--server", f"old=http://{old.address}", "--server", f"new=http://{new.address}")
        run_json(study, *where)
        assert old.requests.count("/2") >= new.requests.count("/2") >= 2
    runs = stored_runs(state)
    assert {run["failure"] for run in runs} == {None}
    assert {tuple(run["checks"]["pages"]["body"]) for run in runs} == {
        tuple(fnv1a(f"n=\0 /{page}".encode()) for page in (1, 2, 3))
    }
    markdown = tmp_path / "report.md"
    page = tmp_path / "report.html"
    iotrial("report", "last", "--markdown", str(markdown), "--html", str(page))
    assert "Pages that gain most and least" in markdown.read_text()
    assert "The pages differ" not in markdown.read_text()
    assert '<section id="pages">' in page.read_text()
