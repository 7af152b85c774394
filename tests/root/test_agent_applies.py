"""An agent tries a setting, applies it within the account, and takes it back, on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client

from agent import done, refused, used

pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.slow]

HUGE_PAGES, KEPT = Path("/proc/sys/vm/nr_hugepages"), Path("/etc/sysctl.d")
#: touches memory, in huge pages if the kernel has some
MAP = """\
import mmap
size, private = 128 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
try:
    memory = mmap.mmap(-1, size, flags=private | 0x40000)
except OSError:
    memory = mmap.mmap(-1, size, flags=private)
memory[::4096] = bytes(size // 4096)
"""
POLICY = """\
folders = ["{folder}"]
trial = "30 s"
total = "3 min"

[knobs]
"vm.nr_hugepages" = ["0", "72"]
"vm.swappiness" = ["60", "61"]

[work.map]
command = ["python3", "-S", "{folder}/map.py"]

[apply]
allowed = true
within = "2 min"
"""


def test_what_helps_is_applied_and_taken_back_and_what_does_nothing_is_refused(tmp_path: Path) -> None:
    if HUGE_PAGES.read_text().strip() != "0":
        pytest.skip("this machine has huge pages")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "map.py").write_text(MAP)
    files = sorted(KEPT.iterdir())

    async def calls(client: Client) -> None:
        work = str(tmp_path / "work")

        async def tried(knob: str, levels: list[str], time_s: float) -> str:
            asked = {"folder": work, "work": "map", "settings": {knob: levels}, "time_s": time_s}
            return str((await done(client, "try_settings", **asked))["trial"]["id"])

        nothing = await tried("vm.swappiness", ["60", "61"], 5.0)
        assert (
            "none is decided to be better"
            in (await refused(client, "apply", trial=nothing, folder=work))["message"]
        )
        trial = await tried("vm.nr_hugepages", ["0", "72"], 30.0)
        applied = await done(client, "apply", trial=trial, folder=work)
        try:
            assert applied["trial"] == trial
            assert HUGE_PAGES.read_text().strip() == "72"
            assert sorted(KEPT.iterdir()) != files
        finally:
            await done(client, "revert", trial=trial)
        assert HUGE_PAGES.read_text().strip() == "0"
        assert sorted(KEPT.iterdir()) == files
        assert "this session" in (await refused(client, "revert", trial=nothing))["message"]

    used(tmp_path, calls, POLICY, {})
