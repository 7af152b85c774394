"""Multi-Gen LRU on a real kernel that has it, which a guest does: set, in force, restored from the journal alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from booted import Booted

from iotrial.errors import UnsupportedLevel
from iotrial.knobs.knob import RunContext, Undone, WorkDraft
from iotrial.lab import host, registry
from iotrial.lab.journal import Journal
from iotrial.lab.restore import restore
from iotrial.study.model import Setting

FILE = "/sys/kernel/mm/lru_gen/enabled"
KNOB = registry.knob("memory.lru_gen")


@pytest.fixture
def context(booted: Booted, tmp_path: Path) -> RunContext:
    target = booted.target
    return RunContext(
        target=target,
        place=SimpleNamespace(worker=target, label="the guest"),  # type: ignore[arg-type]
        journal=Journal(tmp_path / "journal"),
        files=None,
        work=WorkDraft(),
        boot_id=host.boot_id(target),
    )


@pytest.mark.parametrize(
    ("level", "mask"), [("off", "0x0000"), ("0x0001", "0x0001"), ("3", "0x0003"), ("y", "0x0007")]
)
def test_it_is_switched_and_put_back_from_the_journal(context: RunContext, level: str, mask: str) -> None:
    setting, before = Setting(KNOB.name, level), context.target.read(FILE)
    wanted = KNOB.parse(setting)
    KNOB.prepare(context, setting, (wanted,))
    KNOB.write(context, setting, wanted)
    KNOB.verify(context, setting, wanted)
    assert context.target.read(FILE) == mask
    outcomes = [one.outcome for one in restore(context.journal, context.target)]
    assert outcomes == [Undone.ALREADY if mask == before else Undone.RESTORED]
    assert context.target.read(FILE) == before
    assert context.journal.pending() == ()


@pytest.mark.parametrize("value", ["yes", "8", "0x0008", "0x00007", "0x0007\n", "default", ""])
def test_what_is_no_mask_is_refused(value: str) -> None:
    with pytest.raises(UnsupportedLevel, match="on, off, or a mask") as caught:
        KNOB.parse(Setting(KNOB.name, value))
    assert caught.value.hint
