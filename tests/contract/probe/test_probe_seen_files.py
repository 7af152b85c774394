"""A traced command is seen to open its files, also where a ring opens and reads them without a system call of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from probe_client import MIB, Probe

SOURCE = Path(__file__).parent / "ring.c"


@pytest.mark.parametrize("how", ["descriptor", "direct"])
@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_a_file_that_a_ring_opens_is_seen(probe: Probe, folder: Path, how: str) -> None:
    ring = folder / "ring"
    subprocess.run(["cc", "-O1", "-o", str(ring), str(SOURCE)], check=True)
    big = folder / "big"
    big.write_bytes(os.urandom(MIB))
    argv = [str(ring), "big", *([] if how == "descriptor" else [how])]
    if subprocess.run(argv, cwd=folder, check=False).returncode == 77:
        pytest.skip("this kernel allows no io_uring")
    number = folder.stat().st_dev
    answer = probe(
        "command",
        steps=[{"name": "work", "argv": argv}],
        cwd=str(folder),
        touches=[str(folder)],
        touches_device=f"{os.major(number)}:{os.minor(number)}",
    )
    assert answer["verified"], answer["failures"]
    touched = answer["touched"]
    assert touched["unseen"]
    assert str(big) in [path for path, _ in touched["inside"]["data"]]
    assert touched["inside"]["held"] >= MIB


def test_programs_and_libraries_are_no_data(probe: Probe, folder: Path) -> None:
    """Other processes may have them mapped, so that the kernel cannot evict them."""
    program, library, big = folder / "program", folder / "library.so", folder / "big"
    shutil.copy("/bin/cat", program)
    shutil.copy(next(Path("/lib").glob("*-linux-gnu/libm.so.6")), library)
    big.write_bytes(os.urandom(MIB))
    number = folder.stat().st_dev
    answer = probe(
        "command",
        steps=[{"name": "work", "argv": [str(program), "big"]}],
        environment={"LD_PRELOAD": str(library)},
        cwd=str(folder),
        touches=[str(folder)],
        touches_device=f"{os.major(number)}:{os.minor(number)}",
    )
    assert answer["touched"]["inside"]["data"] == [[str(big), MIB]]
    assert answer["touched"]["inside"]["held"] == MIB
