"""Workloads of kind clients: what a study file may say, whose server needs trust, and how clients are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from iotrial.conduct.crowd.links import Link, Links, from_json, links_of, to_json
from iotrial.conduct.crowd.wanted import most_clients
from iotrial.conduct.resolve import resolve
from iotrial.errors import RequestError, StudyError
from iotrial.store.packed.privacy import _words
from iotrial.study.codec import study_from_json, study_to_json
from iotrial.study.model import Study
from iotrial.study.reader import read_study
from iotrial.study.trust import demands
from iotrial.study.work import varied
from iotrial.workloads.clients import ClientsWork
from values import replace

STUDY = """
[study]
name = "many"
question = "How many?"
[[factor]]
name = "clients"
knob = "work.option"
option = "clients"
role = "condition"
levels = [1, 2, 4, 8]
[[factor]]
name = "way"
knob = "command.argument"
placeholder = "{way}"
levels = ["a", "b"]
[[workload]]
name = "fetch"
kind = "clients"
"""
PLAIN = 'argv = ["cat", "{server}/{way}-{client}"]\n'


def read(keys: str = PLAIN) -> Study:
    return read_study(STUDY + keys, "mine.toml", trusted=False)


def work_of(study: Study) -> ClientsWork:
    work = study.workloads[0].work
    assert isinstance(work, ClientsWork)
    return work


def test_a_study_says_the_clients_their_commands_and_their_server() -> None:
    work = work_of(
        read(
            'server = "127.0.0.1:80"\nclients = 3\nvolume = "1 MiB"\nspread = 0.02\nargv = ["cat", "{server}{way}"]\n'
        )
    )
    assert (work.clients, work.server, work.volume_bytes, work.spread) == (3, "127.0.0.1:80", 1 << 20, 0.02)


def test_a_study_survives_being_stored_and_being_varied() -> None:
    study = read('serve = ["srv", "{address}"]\nserve_environment = { N = "{way}" }\n' + PLAIN)
    assert study_from_json(study_to_json(study)) == study
    work = work_of(study)
    assert varied(work, {"clients": "8", "volume": "2 MiB"}) == replace(work, clients=8, volume_bytes=2 << 20)


def test_the_most_clients_are_those_of_the_largest_level_that_runs() -> None:
    assert most_clients(read()) == 8


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("", "found neither"),
        (PLAIN + '[[workload.step]]\nname = "s"\nargv = ["x"]\n', "found both"),
        ('argv = ["cat", "{file}"]\n', "a client has none"),
        ('cwd = "{dir}"\nargv = ["ls"]\n', "a client has none"),
        ('argv = [" "]\n', "names the program"),
        ('server = "h"\nserve = ["s", "{port}"]\n' + PLAIN, "either the study starts its server"),
        ('serve = ["s"]\n' + PLAIN, "not told where to listen"),
        ('server = "h"\nmake = ["m"]\n' + PLAIN, "not what a server elsewhere serves"),
        ('make_input = "x"\n' + PLAIN, "no program that it is for"),
        ("clients = 0\n" + PLAIN, "clients"),
        ("clients = 257\n" + PLAIN, "clients"),
        ("spread = 0.0\n" + PLAIN, "spread"),
        ("files = 3\n" + PLAIN, "files"),
    ],
)
def test_what_cannot_work_is_refused_where_it_stands(keys: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        read(keys)


@pytest.mark.parametrize(
    ("server", "own"),
    [
        ("127.0.0.1:80", True),
        ("[::1]:80", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("nas:/export", False),
        ("/etc", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.example:80", False),
    ],
)
def test_only_a_server_that_is_plainly_of_this_machine_needs_no_trust(server: str, own: bool) -> None:
    found = demands(read(f'server = "{server}"\n' + PLAIN))
    assert (not any("not plainly an address of this machine" in text for text in found)) is own


def test_a_level_that_names_another_server_needs_trust_too() -> None:
    text = STUDY.replace('option = "clients"', 'option = "server"').replace(
        "[1, 2, 4, 8]", '["localhost", "10.1.1.1"]'
    )
    study = read_study(text + 'server = "localhost"\n' + PLAIN, "mine.toml", trusted=False)
    assert any("10.1.1.1" in found for found in demands(study))


def test_shells_of_clients_and_of_the_server_need_trust() -> None:
    found = demands(read('serve = ["sh", "-c", "{port}"]\nargv = ["bash", "{way}"]\n'))
    assert {"sh", "bash"} <= {name for name in ("sh", "bash") if any(f"({name})" in text for text in found)}


def test_links_are_commands_with_a_name_and_perhaps_an_address() -> None:
    found = links_of(["c1=ssh nas-client-1 ioprobe", "c2@10.0.0.2=sh 'two words'"], "ssh nas ioprobe")
    assert found.clients == (
        Link("c1", ("ssh", "nas-client-1", "ioprobe")),
        Link("c2", ("sh", "two words"), "10.0.0.2"),
    )
    assert found.server == ("ssh", "nas", "ioprobe")
    assert from_json(to_json(found)) == found
    assert to_json(Links()) == {}
    assert from_json({}) == Links()


def test_links_may_stand_in_a_file_a_line_each(tmp_path: Path) -> None:
    file = tmp_path / "clients"
    file.write_text("# the rack\nc1=ssh a ioprobe\n\n  c2=ssh b ioprobe\n")
    assert [link.name for link in links_of([f"@{file}", "c3=ssh c ioprobe"], None).clients] == [
        "c1",
        "c2",
        "c3",
    ]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["ssh host ioprobe"], "wanted NAME=COMMAND"),
        (["=x"], "wanted NAME=COMMAND"),
        (["a b=x"], "wanted NAME=COMMAND"),
        (["c1@=x", "c1=y"], "twice"),
        (["c1= "], "is empty"),
        (["c1='x"], "No closing quotation"),
        (["c1@bad address=x"], "wanted NAME=COMMAND"),
        (["@/nowhere/at/all"], "cannot read"),
    ],
)
def test_a_link_that_is_none_is_refused(texts: list[str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        links_of(texts, None)


def test_links_of_a_study_without_clients_are_refused() -> None:
    study = read_study(
        STUDY.replace('option = "clients"', 'option = "clients"').split("[[factor]]")[0]
        + '[[factor]]\nname = "mode"\nknob = "file.mode"\nlevels = ["0444", "0777"]\n'
        + '[[workload]]\nname = "w"\nkind = "files"\noperations = ["stat"]\n',
        "mine.toml",
        trusted=False,
    )
    with pytest.raises(RequestError, match="no workload of the study has clients"):
        resolve(study, root=False, lab="directory", links=links_of(["c1=ioprobe"], None))


def test_a_folder_of_the_lab_is_for_a_folder_lab_alone() -> None:
    with pytest.raises(RequestError, match="do not see what a lab of kind image mounts"):
        resolve(read(), root=True, lab="image", trust=True)


def test_without_a_lab_named_root_gets_the_folder_lab_for_clients_of_a_folder() -> None:
    assert resolve(read(), root=True, trust=True).lab == "directory"
    assert resolve(read('serve = ["true", "{port}"]\n' + PLAIN), root=True, trust=True).lab == "image"


def test_a_packed_trial_leaves_out_by_which_commands_hosts_are_reached() -> None:
    argv = ["iotrial", "run", "nas/clients", "--client", "c1=ssh me@host ioprobe", "--time", "1m"]
    argv += ["--client=c2=ssh other ioprobe", "--server-probe", "ssh nas ioprobe", "--no-stop"]
    assert _words(argv, read()) == ["iotrial", "run", "nas/clients", "--time", "1m", "--no-stop"]
