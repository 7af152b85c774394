"""Choice of the guest's accelerator: what is tried, and what is remembered until the host reboots."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from iotrial.errors import ProbeError
from iotrial.guest import qemu
from iotrial.guest.qemu import Accelerator
from iotrial.probe.client import Probe
from iotrial.runner.guest import Accelerators, Guest, GuestSpec

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


class Scripted(Guest):
    """Fake guest that boots only with the accelerators in ``works``."""

    def __init__(self, store: Path, device: Path, boot: Path) -> None:
        super().__init__(GuestSpec(store), store=store)
        self._accelerators = Accelerators(store / "noted", device, boot)
        self.works: set[Accelerator] = set()
        self.tried: list[Accelerator] = []

    def _boot(self, accelerator: Accelerator) -> Probe:
        self.tried.append(accelerator)
        if accelerator not in self.works:
            raise ProbeError("it does not come up")
        return cast("Probe", object())


@pytest.fixture
def guest(tmp_path: Path, device: Path, boot: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(qemu, "find", lambda: "qemu")
    return Scripted(tmp_path, device, boot)


def test_a_trial_has_one_accelerator_also_where_a_later_boot_fails(guest: Scripted) -> None:
    guest.works = set(BOTH)
    guest.start()
    guest.works = {Accelerator.TCG}
    with pytest.raises(ProbeError):
        guest.start()
    assert guest.tried == [Accelerator.KVM, Accelerator.KVM]
    assert guest.accelerator is Accelerator.KVM
    assert guest._accelerators.to_try() == BOTH  # an accelerator that worked once is not broken


def test_one_that_does_not_come_up_is_broken_only_if_the_same_guest_comes_up_otherwise(
    guest: Scripted,
) -> None:
    with pytest.raises(ProbeError):
        guest.start()
    assert guest._accelerators.to_try() == BOTH  # the cause may be a guest that does not boot at all
    guest.works = {Accelerator.TCG}
    guest.start()
    assert guest.tried == [*BOTH, *BOTH]
    assert guest._accelerators.to_try() == ONE


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"boot": 1}'])
def test_a_note_that_cannot_be_read_says_nothing(text: str, device: Path, tmp_path: Path, boot: Path) -> None:
    (tmp_path / "noted").write_text(text)
    assert Accelerators(tmp_path / "noted", device, boot).to_try() == BOTH
