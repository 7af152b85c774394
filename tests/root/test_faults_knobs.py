"""Settings that a kernel accepts silently and does not keep: detected by read-back, before the first run if
possible."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from breaking import iotrial, last_trial, nothing_left
from probe_between import install
from running import SCHEDULERS, stored_runs, write_study

from iotrial.errors import KnobError
from iotrial.knobs.cgroup import GroupKnob
from iotrial.knobs.kernel_file import KernelFileKnob
from iotrial.knobs.knob import RunContext, WorkDraft
from iotrial.lab import registry
from iotrial.lab.journal import Journal
from iotrial.lab.target import Target
from iotrial.study.model import Setting
from study_texts import reading

READ_AHEAD = """
[study]
name = "read-ahead"
question = "Does read-ahead matter?"
[lab]
kind = "image"
size = "64 MiB"
[budget]
time = "20 s"
blocks = 2
[[factor]]
name = "ahead"
knob = "block.read_ahead_kb"
levels = ["4", "{level}"]
""" + reading()


@dataclass
class Deaf:
    """A machine that accepts every write and keeps its old values."""

    name: str = "deaf"
    text: str = "7"
    written: list[tuple[str, str]] = field(default_factory=list)

    def call(self, verb: str, **fields: object) -> dict[str, Any]:
        if verb == "read":
            return {"data": self.text}
        if verb == "list":
            return {"names": ["cpu0"]}
        if verb == "stat":
            return {}
        assert verb == "write", verb
        self.written.append((str(fields["path"]), str(fields["data"])))
        return {}


class Disk:
    kind = "image"
    device = "loop9"
    whole = "loop9"
    queues = ("loop9",)
    root = "/run/lab"
    label = "ext4 on loop9"


VALUES = {
    "block.scheduler": ("[none] bfq", "bfq", "none"),
    "memory.lru_gen": ("0x0007", "0x0000", "0x0007"),
}
KEYS = {"guest.sysctl": "vm.min_free_kbytes", "block.tunable": "read_expire"}
#: a file of a control group has a line for each device: tests/unit/test_io_groups.py
ONES = [
    name
    for name, knob in registry.knobs().items()
    if isinstance(knob, KernelFileKnob) and not isinstance(knob, GroupKnob)
]


def test_there_are_knobs_that_are_files_of_the_kernel() -> None:
    assert {"block.scheduler", "block.read_ahead_kb", "sysctl"} <= set(ONES)


@pytest.mark.parametrize("name", ONES)
def test_a_write_that_is_swallowed_is_an_error_with_knob_target_written_and_reported(
    name: str, tmp_path: Path
) -> None:
    knob = registry.knob(name)
    shown, value, found = VALUES.get(name, ("7", "64", "7"))
    channel = Deaf(text=shown)
    options = (("key", KEYS.get(name, "vm.swappiness")),) if knob.option == "key" else ()
    setting = Setting(name, value, options)
    context = RunContext(Target(channel), Disk(), Journal(tmp_path), None, WorkDraft())  # type: ignore[arg-type]
    knob.write(context, setting, value)
    [(path, data)] = channel.written
    assert data == value
    with pytest.raises(KnobError) as raised:
        knob.verify(context, setting, value)
    assert raised.value.message == f'knob {name} on {path}: wrote "{value}", kernel reports "{found}"'


@pytest.mark.root
@pytest.mark.parametrize(("level", "kept"), [("5", "4"), ("130", "128")])
def test_read_ahead_that_the_kernel_rounds_to_pages_is_told_before_the_first_run(
    state: Path, tmp_path: Path, level: str, kept: str
) -> None:
    done = iotrial("run", write_study(tmp_path, READ_AHEAD.format(level=level)), "--json")
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert error["code"] == "knob"
    for part in ("block.read_ahead_kb", "/sys/block/loop", f'wrote "{level}"', f'reports "{kept}"'):
        assert part in error["message"]
    assert json.loads(iotrial("trials", "--json").stdout)["trials"] == []
    nothing_left(state)


@pytest.mark.root
@pytest.mark.long
def test_a_mount_option_that_btrfs_lowers_without_a_word_is_told_with_both_values(
    state: Path, tmp_path: Path
) -> None:
    study = READ_AHEAD.replace("block.read_ahead_kb", "mount.option").replace(
        '"4", "{level}"', '"default", "compress=zstd:20"'
    )
    study = study.replace('size = "64 MiB"', 'filesystem = "btrfs"').replace("blocks = 2", "blocks = 6")
    done = iotrial("run", write_study(tmp_path, study), "--no-stop", "--json")
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    # btrfs supports zstd levels up to 15 (btrfs(5))
    assert 'wrote "compress=zstd:20", kernel reports "compress=zstd:15"' in error["message"]
    nothing_left(state)


@pytest.mark.root
@pytest.mark.long
def test_the_third_setting_that_does_not_take_ends_the_trial_and_keeps_its_runs(
    state: Path, tmp_path: Path
) -> None:
    study = write_study(tmp_path, SCHEDULERS.replace("blocks = 3", "blocks = 6"))
    # the writes before the first run (journal, pins, rehearsal) still take effect
    environment = install(
        tmp_path, verb="write", nth=4, does="swallow", where={"path": "/queue/scheduler", "data": "bfq"}
    )
    done = iotrial("run", study, "--no-stop", "--json", env=environment)
    assert done.returncode == 1, done.stderr
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert "cannot be applied (3 times)" in error["message"]
    assert "block.scheduler" in error["message"]
    assert 'wrote "bfq", kernel reports "none"' in error["message"]
    finished = stored_runs(state)
    assert sum(run["checks"].get("void") == "read_back_failed" for run in finished) == 3
    assert len(finished) > 3
    assert last_trial()["state"] == "failed"
    nothing_left(state)
