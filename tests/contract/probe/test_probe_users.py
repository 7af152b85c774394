"""Acting as another user, and working without root."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from probe_client import MIB, NOBODY, READING, Probe, ProbeError, eventually, make_set, zombie


@pytest.mark.root
def test_a_job_as_another_user_meets_that_users_rights_and_root_comes_back(folder: Path) -> None:
    isolated = Probe("--isolate", extra_groups=[4243, 4242])
    make_set(isolated, folder, mode="0600")
    make_set(isolated, folder, "own", mode="0600", owner={"uid": NOBODY, "gid": NOBODY})
    nobody = {"uid": NOBODY, "gid": NOBODY}
    with pytest.raises(ProbeError, match="Permission denied") as caught:
        isolated("files", set="s", operations=READING, user=nobody)
    assert (caught.value.code, caught.value.errno) == ("os", 13)
    isolated("files", set="s", operations=READING)
    isolated("files", set="own", operations=READING, user=nobody)
    isolated("files", set="own", operations=["unlink", "create", "write-byte", "close"], user=nobody)
    assert {(f.stat().st_uid, f.stat().st_gid) for f in (folder / "own").iterdir()} == {(NOBODY, NOBODY)}
    status = isolated("read", path="/proc/self/status")["data"]
    assert re.search(r"Uid:\t0\t0\t0\t0", status)
    assert re.search(r"Gid:\t0\t0\t0\t0", status)
    assert re.search(r"Groups:\t4242 4243\s", status)
    assert isolated("hello")["privileged"] is True
    assert isolated.close() == 0


@pytest.mark.root
def test_the_probe_still_dies_with_its_parent_after_acting_as_another_user(folder: Path) -> None:
    """The kernel clears the parent-death signal at each change of user."""
    program = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from probe_client import Probe, make_set
probe = Probe()
make_set(probe, Path({str(folder)!r}))
probe("files", set="s", operations=["stat"], user={{"uid": 65534, "gid": 65534}})
print(probe.process.pid, flush=True)
time.sleep(1000)
"""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout
    pid = int(parent.stdout.readline())
    # Hold the write end of its standard input open here, so that the probe is not ended by end of file.
    held = os.open(f"/proc/{pid}/fd/0", os.O_WRONLY)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    gone = eventually(lambda: not Path(f"/proc/{pid}").exists() or zombie(pid))
    os.close(held)
    assert gone


def test_everything_but_mounts_works_without_root(folder: Path) -> None:
    """Run as nobody if the tests run as root, and always without namespaces."""
    options: dict[str, Any] = {}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    probe = Probe(**options)
    hello = probe("hello")
    assert (hello["isolated"], hello["privileged"]) == (False, False)
    path = make_set(probe, folder, size=5000, directories=2)
    probe("set_mode", set="s", mode="0444")
    for state in ("stale", "fresh"):
        probe("set_atime_state", set="s", state=state)
    probe("evict", set="s")
    assert probe("residency", set="s")["resident"] == 0
    assert probe("files", set="s", operations=["getdents", *READING])["bytes_read"] == 20 * 5000
    probe("set_size", set="s", size=100)
    probe("link", set="s", view="A", kind="symlink-chain")
    assert probe("command", set="s", view="A", steps=[{"name": "c", "argv": ["cat", "{files}"]}])["verified"]
    probe("unlink", set="s", view="A")
    probe("fileset_verify", set="s")
    probe("image_free", image=probe("image", folder=str(folder), size=MIB, fill="allocate")["image"])
    image = probe("image", folder=str(folder), size=MIB, fill="write")["image"]
    with pytest.raises(ProbeError, match="needs root") as caught:
        probe("loop_attach", image=image, direct_io=True)
    assert caught.value.code == "unsupported"
    with pytest.raises(ProbeError, match="not permitted"):
        probe("mount", source="none", target=str(path), type="tmpfs", options=[])
    for verb in ("files", "command"):
        own = {"operations": ["stat"]} if verb == "files" else {"steps": [{"name": "t", "argv": ["true"]}]}
        with pytest.raises(ProbeError, match="root") as caught:
            probe(verb, set="s", user={"uid": 1, "gid": 1}, **own)
        assert caught.value.code == "unsupported"
    assert probe("remove", path=str(path), recursive=True)["removed"] == 23
    assert probe.close() == 0
    refused = Probe("--isolate", stderr=subprocess.PIPE, **options)
    assert refused.process.stderr
    words = refused.process.stderr.read().decode()
    refused.process.stderr.close()
    assert refused.close() == 1
    assert "root" in words
