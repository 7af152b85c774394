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
        ({"operation": "read", "data": "random"}, "only for writes"),
        ({"operation": "read", "flush": "fsync"}, "only for writes"),
        ({"operation": "write", "seconds": 1}, "only for reads"),
        ({"operation": "write", "data": "130 % random"}, "share such as"),
        ({"operation": "write", "data": "random", "beside": True}, "needs data"),
        ({"operation": "read", "block_size": 0}, "block_size"),
        ({"operation": "read", "volume": 1000}, "multiple of the block size"),
        ({"operation": "read", "replicates": 2}, "runs once"),
        ({"operation": "read", "streams": 2}, "expected 2 of"),
        ({"operation": "copy"}, "expected 2 of"),
        ({"operation": "read", "streams": 0}, "streams"),
        ({"operation": "read", "streams": 65}, "streams"),
        ({"operation": "read", "copy_with": "copy-file-range"}, "only for copies"),
        (
            {"operation": "copy", "copy_with": "copy-file-range", "direct": True},
            "only for copies through the page cache",
        ),
        ({"operation": "copy", "data": "random"}, "data that the probe generates"),
        ({"operation": "rewrite", "truncate": False}, "does not change the size"),
        ({"operation": "copy", "seconds": 1}, "only for reads"),
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
        with pytest.raises(ProbeError, match="not in this lab") as caught:
            probe("stream", operation="read", device=name)
        assert caught.value.code == "bad_request"


@pytest.mark.root
def test_the_labs_device_is_read_and_never_written(lab: Lab) -> None:
    for fields in (
        {"operation": "write"},
        {"operation": "read", "set": "s"},
        {"operation": "read", "streams": 2},
    ):
        with pytest.raises(
            ProbeError, match="only for reads by the probe itself, in one stream, without a file set"
        ):
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
