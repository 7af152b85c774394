"""How a guest is executed: what is tried, and what is remembered until the machine is booted anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iotrial.conduct.guest import Accelerators
from iotrial.lab.guest.qemu import Accelerator

BOTH, ONE = (Accelerator.KVM, Accelerator.TCG), (Accelerator.TCG,)


@pytest.fixture
def device(tmp_path: Path) -> Path:
    (tmp_path / "kvm").touch()
    return tmp_path / "kvm"


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    (tmp_path / "boot").write_text("one\n")
    return tmp_path / "boot"


def test_without_the_device_nothing_else_is_tried(tmp_path: Path, boot: Path) -> None:
    assert Accelerators(tmp_path / "noted", tmp_path / "none", boot).to_try() == ONE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_a_device_that_is_not_ours_to_open_is_none(device: Path, tmp_path: Path, boot: Path) -> None:
    device.chmod(0)
    assert Accelerators(tmp_path / "noted", device, boot).to_try() == ONE


def test_what_did_not_work_is_not_tried_again_until_the_next_boot(
    device: Path, tmp_path: Path, boot: Path
) -> None:
    found = Accelerators(tmp_path / "deep/noted", device, boot)
    assert found.to_try() == BOTH
    found.note_broken(Accelerator.KVM)
    assert found.to_try() == ONE
    boot.write_text("two\n")
    assert found.to_try() == BOTH


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"boot": 1}'])
def test_a_note_that_cannot_be_read_says_nothing(text: str, device: Path, tmp_path: Path, boot: Path) -> None:
    (tmp_path / "noted").write_text(text)
    assert Accelerators(tmp_path / "noted", device, boot).to_try() == BOTH
