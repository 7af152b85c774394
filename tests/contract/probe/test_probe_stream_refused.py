"""The stream job: its refusals and failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_client import (
    MIB,
    NOBODY,
    Lab,
    Probe,
    ProbeError,
    make_set,
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"operation": "read", "data": "random"}, "are for writing"),
        ({"operation": "read", "flush": "fsync"}, "are for writing"),
        ({"operation": "write", "seconds": 1}, "of reading"),
        ({"operation": "write", "data": "130 % random"}, "share such as"),
        ({"operation": "write", "data": "random", "beside": True}, "/dev/zero has zeros only"),
        ({"operation": "read", "block_size": 0}, "block_size"),
        ({"operation": "read", "volume": 1000}, "whole blocks"),
        ({"operation": "read", "replicates": 2}, "done once"),
        ({"operation": "read", "streams": 2}, "wanted 2 of"),
        ({"operation": "copy"}, "wanted 2 of"),
        ({"operation": "read", "streams": 0}, "streams"),
        ({"operation": "read", "streams": 65}, "streams"),
        ({"operation": "read", "copy_with": "copy-file-range"}, "of a copy"),
        (
            {"operation": "copy", "copy_with": "copy-file-range", "direct": True},
            "of a copy through the cache",
        ),
        ({"operation": "copy", "data": "random"}, "for writing what the probe makes"),
        ({"operation": "rewrite", "truncate": False}, "as long as it is"),
        ({"operation": "copy", "seconds": 1}, "of reading"),
        ({"operation": "read", "pause_s": -1}, "pause_s"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_no_original_could_do_is_refused(
    probe: Probe, folder: Path, fields: dict[str, Any], message: str
) -> None:
    make_set(probe, folder, count=2, size=4096 * 4)
    with pytest.raises(ProbeError, match=message) as caught:
        probe("stream", **{"set": "s", "files": [0], "block_size": 4096, **fields})
    assert caught.value.code == "bad_request"


def test_a_device_that_is_not_the_labs_is_refused(probe: Probe) -> None:
    disk = sorted(x.name for x in Path("/sys/block").iterdir())[0]
    for name in (disk, "sda", "../sda", "/dev/sda", "loop0"):
        with pytest.raises(ProbeError, match="one of this lab") as caught:
            probe("stream", operation="read", device=name)
        assert caught.value.code == "bad_request"


@pytest.mark.root
def test_the_labs_device_is_read_and_never_written(lab: Lab) -> None:
    for fields in (
        {"operation": "write"},
        {"operation": "read", "set": "s"},
        {"operation": "read", "streams": 2},
    ):
        with pytest.raises(ProbeError, match="read only, by the probe itself, once and without a set"):
            lab.probe("stream", device=lab.name, **fields)
    done = lab.probe("stream", operation="read", device=lab.name, devices=[lab.name], block_size=2 * MIB)
    assert (done["bytes"], done["ended"]) == (64 * MIB, "end")
    assert (
        done["devices"][lab.name]["read_bytes"] >= 64 * MIB - 8 * MIB
    )  # except what the file system keeps cached


@pytest.mark.root
def test_a_full_disk_is_an_error_that_says_where(lab: Lab) -> None:
    make_set(lab.probe, lab.mounted, count=1, size=4096)
    with pytest.raises(ProbeError, match=r"write .*f000000 at offset \d+: No space left") as caught:
        lab.probe("stream", set="s", operation="write", volume=100 * MIB, data="random")
    assert caught.value.errno == 28
    lab.probe("stream", set="s", operation="write", volume=MIB)  # the set still works


@pytest.mark.root
def test_another_user_streams_with_that_users_rights(isolated: Probe, folder: Path) -> None:
    make_set(isolated, folder, count=1, size=8192, mode="0600")
    user = {"uid": NOBODY, "gid": NOBODY}
    with pytest.raises(ProbeError) as caught:
        isolated("stream", set="s", operation="read", user=user)
    assert caught.value.errno == 13
    assert isolated("stream", set="s", operation="read")["bytes"] == 8192
