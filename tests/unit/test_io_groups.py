"""Limits of I/O by control groups: values and their lines in the kernel's files, refusals, and undo of one line."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iotrial.errors import KnobError, LabError, RequestError, TargetError, UnsupportedLevel
from iotrial.knobs.declaration import Safety, consequence_of
from iotrial.knobs.knob import RunContext, TakenError, Undone, WorkDraft
from iotrial.lab import cgroup, registry
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.target import Target
from iotrial.runner.quick_study import setting_of
from iotrial.study.model import Setting

GROUP = "/sys/fs/cgroup/system.slice/backup.service"
UNIFIED = {
    "/proc/self/cgroup": "0::/user.slice/session-1.scope",
    "/proc/self/mountinfo": "30 20 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "/sys/fs/cgroup/cgroup.controllers": "cpu io memory",
    "/sys/fs/cgroup/user.slice/cgroup.subtree_control": "io memory",
    f"{GROUP}/io.max": "7:1 rbps=max wbps=1048576 riops=max wiops=max",
    f"{GROUP}/io.latency": "",
    f"{GROUP}/io.weight": "default 100\n8:0 50",
    f"{GROUP}/io.bfq.weight": "default 100",
    "/sys/fs/cgroup/io.cost.qos": "",
    "/sys/block/sda/dev": "8:0",
    "/sys/block/sda/diskseq": "9",
}


class Kernel:
    """Fake machine of a few files. A line that is written to a file of lines replaces the device's own."""

    name = "kernel"

    def __init__(self, changed: dict[str, str] | None = None) -> None:
        self.files = UNIFIED | (changed or {})

    def call(self, verb: str, **fields: Any) -> dict[str, Any]:
        path = str(fields["path"])
        if verb == "stat":
            if not any(one == path or one.startswith(f"{path}/") for one in self.files):
                raise TargetError("no such file", errno=2)
            return {"kind": "directory"}
        if path not in self.files:
            raise TargetError("no such file", errno=2)
        if verb == "read":
            return {"data": self.files[path]}
        assert verb == "write", verb
        device, _, words = str(fields["data"]).strip().partition(" ")
        if not words:
            self.files[path] = f"default {device}"
            return {}
        rest = [line for line in self.files[path].split("\n") if line and not line.startswith(f"{device} ")]
        self.files[path] = "\n".join([*rest, f"{device} {words}"])
        return {}


def context_on(kernel: Kernel, tmp_path: Path, **place: object) -> RunContext:
    target = Target(kernel)
    fields = {
        "worker": target,
        "kind": "in-place",
        "device": "sda",
        "whole": "sda",
        "queues": ("sda",),
        "label": "x",
    }
    return RunContext(
        target=target,
        place=SimpleNamespace(**(fields | place)),  # type: ignore[arg-type]
        journal=Journal(tmp_path / "journal"),
        files=None,
        work=WorkDraft(),
        boot_id="b",
        trial="0badcafe",
    )


def of_group(knob: str, value: str) -> Setting:
    return Setting(knob, value, (("key", "system.slice/backup.service"),))


@pytest.mark.parametrize(
    ("knob", "text", "value", "line"),
    [
        ("io.max", "none", "none", "rbps=max wbps=max riops=max wiops=max"),
        ("io.max", "wbps=8MiB", "wbps=8388608", "rbps=max wbps=8388608 riops=max wiops=max"),
        ("io.max", "riops=20 rbps=1MiB", "rbps=1048576 riops=20", "rbps=1048576 wbps=max riops=20 wiops=max"),
        ("io.latency", "10 ms", "10000", "target=10000"),
        ("io.latency", "none", "none", "target=0"),
        ("io.cost.qos", "off", "off", "enable=0 ctrl=auto"),
        ("io.cost.qos", "on", "on", "enable=1 ctrl=auto"),
        (
            "io.cost.qos",
            "rpct=95 rlat=5000 wpct=95 wlat=5000 min=50 max=150",
            "rpct=95.00 rlat=5000 wpct=95.00 wlat=5000 min=50.00 max=150.00",
            "enable=1 ctrl=user rpct=95.00 rlat=5000 wpct=95.00 wlat=5000 min=50.00 max=150.00",
        ),
    ],
)
def test_a_value_is_written_for_the_device_as_the_kernel_reads_it(
    knob: str, text: str, value: str, line: str, tmp_path: Path
) -> None:
    kernel = Kernel()
    context = context_on(kernel, tmp_path)
    setting = Setting(knob, text) if knob == "io.cost.qos" else of_group(knob, text)
    one = registry.knob(knob)
    assert one.parse(setting) == value
    one.write(context, setting, value)
    path = f"/sys/fs/cgroup/{knob}" if knob == "io.cost.qos" else f"{GROUP}/{knob}"
    assert f"8:0 {line}" in kernel.files[path].split("\n")
    assert one.read(context, setting) == value
    # the line of another device is not touched
    assert knob != "io.max" or "7:1 rbps=max wbps=1048576 riops=max wiops=max" in kernel.files[path]


def test_a_weight_is_written_to_both_of_its_files_as_systemd_does(tmp_path: Path) -> None:
    kernel = Kernel()
    context = context_on(kernel, tmp_path)
    weight = registry.knob("io.weight")
    assert weight.read(context, of_group("io.weight", "10")) == "100"
    weight.write(context, of_group("io.weight", "10"), "10")
    assert kernel.files[f"{GROUP}/io.weight"] == kernel.files[f"{GROUP}/io.bfq.weight"] == "default 10"


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("io.max", "wbps"), ("io.max", "wbps=0 B"), ("io.max", "speed=1MiB"), ("io.max", "wbps=1MiB wbps=2MiB"),
        ("io.max", ""), ("io.max", "riops=0"), ("io.max", "wbps=8"), ("io.latency", "0 s"), ("io.latency", "10"),
        ("io.weight", "0"), ("io.weight", "1001"), ("io.weight", "x"), ("io.cost.qos", "auto"),
        ("io.cost.qos", "rpct=95"), ("io.cost.qos", "rpct=101 rlat=1 wpct=1 wlat=1 min=1 max=1"),
        ("io.cost.qos", "rpct=1e1 rlat=1 wpct=1 wlat=1 min=1 max=1"),
    ],
)  # fmt: skip
def test_a_value_that_the_kernel_does_not_have_is_refused(knob: str, value: str) -> None:
    with pytest.raises(UnsupportedLevel, match=knob):
        registry.knob(knob).parse(Setting(knob, value))


@pytest.mark.parametrize("group", ["../x", "/x", "a//b", "a/../b", ".", "a/", "a b", "a\nb", ""])
def test_a_text_that_is_no_group_is_refused(group: str) -> None:
    with pytest.raises(UnsupportedLevel, match="is not a control group"):
        registry.knob("io.max").parse(Setting("io.max", "none", (("key", group),)))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"/proc/self/mountinfo": ""}, "no control groups of version 2"),
        ({"/sys/fs/cgroup/cgroup.controllers": "hugetlb"}, "have no io controller"),
        ({"/sys/fs/cgroup/user.slice/cgroup.subtree_control": "memory"}, "io controller is not enabled"),
    ],
)
def test_where_the_work_can_have_no_group_it_is_said_why(
    changed: dict[str, str], words: str, tmp_path: Path
) -> None:
    context = context_on(Kernel(changed), tmp_path)
    with pytest.raises(UnsupportedLevel, match=words):
        registry.knob("io.max").prepare(context, Setting("io.max", "none"), ("none",))
    assert context.journal.pending() == ()


def test_a_group_that_is_not_there_a_kernel_without_the_file_and_a_place_without_a_disk_are_refused(
    tmp_path: Path,
) -> None:
    knob, kernel = registry.knob("io.latency"), Kernel()
    gone = Setting("io.latency", "none", (("key", "no.slice"),))
    with pytest.raises(UnsupportedLevel, match=r"no control group /sys/fs/cgroup/no\.slice"):
        knob.read(context_on(kernel, tmp_path), gone)
    del kernel.files[f"{GROUP}/io.latency"]
    with pytest.raises(UnsupportedLevel, match=r"this kernel has no .*/io\.latency"):
        knob.prepare(context_on(kernel, tmp_path), of_group("io.latency", "none"), ("none",))
    none = context_on(kernel, tmp_path, device=None, whole=None, queues=())
    with pytest.raises(RequestError, match="has no block device"):
        registry.knob("io.max").read(none, of_group("io.max", "none"))


def test_a_service_in_use_must_be_named_by_its_group(tmp_path: Path) -> None:
    context = context_on(Kernel(), tmp_path, shared=True)
    with pytest.raises(RequestError, match="not in a group of iotrial's"):
        registry.knob("io.max").read(context, Setting("io.max", "none"))


def test_the_groups_of_a_trial_are_next_to_its_own_and_are_removed_by_restore() -> None:
    groups = cgroup.groups_of(Target(Kernel()), "io.max", "0badcafe77")
    assert groups.home == "/sys/fs/cgroup/user.slice/session-1.scope"
    assert groups.work == "/sys/fs/cgroup/user.slice/iotrial-lab-0badcafe-work"
    assert groups.neighbour == "/sys/fs/cgroup/user.slice/iotrial-lab-0badcafe-neighbour"
    from iotrial.lab.objects.cgroup import OWN

    assert OWN.fullmatch(groups.work)
    assert OWN.fullmatch(groups.neighbour)


def entry(context: RunContext) -> Entry:
    (one,) = context.journal.pending()
    return one


def test_the_limit_of_an_existing_group_is_put_back_for_its_device_only(tmp_path: Path) -> None:
    kernel = Kernel()
    context = context_on(kernel, tmp_path)
    knob, setting = registry.knob("io.max"), of_group("io.max", "wbps=8MiB")
    knob.prepare(context, setting, ("wbps=8388608",))
    knob.write(context, setting, "wbps=8388608")
    assert knob.undo(context.target, entry(context)) is Undone.RESTORED
    assert kernel.files[f"{GROUP}/io.max"].split("\n") == [
        "7:1 rbps=max wbps=1048576 riops=max wiops=max",
        "8:0 rbps=max wbps=max riops=max wiops=max",
    ]
    assert knob.undo(context.target, entry(context)) is Undone.ALREADY
    del kernel.files[f"{GROUP}/io.max"]
    assert knob.undo(context.target, entry(context)) is Undone.GONE


def test_what_others_have_set_since_and_another_disk_of_that_number_are_left_alone(tmp_path: Path) -> None:
    kernel = Kernel()
    context = context_on(kernel, tmp_path)
    knob, setting = registry.knob("io.max"), of_group("io.max", "wbps=8MiB")
    knob.prepare(context, setting, ("wbps=8388608",))
    kernel.files[f"{GROUP}/io.max"] = "8:0 rbps=4096 wbps=max riops=max wiops=max"
    with pytest.raises(TakenError, match="neither the value of the trial"):
        knob.undo(context.target, entry(context))
    kernel.files[f"{GROUP}/io.max"] = "8:0 rbps=max wbps=8388608 riops=max wiops=max"
    kernel.files["/sys/block/sda/diskseq"] = "10"
    with pytest.raises(TakenError, match="8:0 is another disk now"):
        knob.undo(context.target, entry(context))
    assert "wbps=8388608" in kernel.files[f"{GROUP}/io.max"]


@pytest.mark.parametrize(
    "address",
    [
        {"path": "/etc/passwd", "device": "8:0"},
        {"path": "/sys/fs/cgroup/../../etc/io.max", "device": "8:0"},
        {"path": f"{GROUP}/io.latency", "device": "8:0"},
        {"path": f"{GROUP}/io.max", "device": "8:0 x"},
        {"path": f"{GROUP}/io.max"},
    ],
)
def test_an_entry_that_the_knob_cannot_have_written_is_not_obeyed(address: dict[str, str]) -> None:
    wrong = Entry(1, "io.max", address, "none", ("wbps=8388608",))
    with pytest.raises(LabError, match="never sets"):
        registry.knob("io.max").undo(Target(Kernel()), wrong)


@pytest.mark.parametrize("file", ["cgroup.procs", "memory.max", "io.max"])
def test_the_weight_writes_no_other_file_of_a_group(file: str) -> None:
    wrong = Entry(1, "io.weight", {"path": f"{GROUP}/{file}"}, "100", ("10",))
    with pytest.raises(LabError, match="never sets"):
        registry.knob("io.weight").undo(Target(Kernel({f"{GROUP}/{file}": "10"})), wrong)


def test_a_value_that_does_not_take_is_an_error(tmp_path: Path) -> None:
    class Deaf(Kernel):
        def call(self, verb: str, **fields: Any) -> dict[str, Any]:
            return {} if verb == "write" else super().call(verb, **fields)

    context = context_on(Deaf(), tmp_path)
    knob, setting = registry.knob("io.max"), of_group("io.max", "riops=5")
    knob.write(context, setting, "riops=5")
    with pytest.raises(KnobError, match="riops=5"):
        knob.verify(context, setting, "riops=5")


def test_no_limit_puts_data_at_risk() -> None:
    for knob, value in (
        ("io.max", "none"),
        ("io.weight", "10"),
        ("io.latency", "10 ms"),
        ("io.cost.qos", "on"),
    ):
        found = consequence_of(Setting(knob, value)).safety
        assert found in (Safety.HARMLESS, Safety.TRADE_OFF), knob


def test_a_group_is_named_behind_an_at_sign_on_the_command_line() -> None:
    found = setting_of("io.max@system.slice/backup@1.service=none,wbps=8MiB")
    assert (found.knob, found.option) == ("io.max", ("key", "system.slice/backup@1.service"))
    assert found.values == ("none", "wbps=8MiB")
    assert setting_of("io.weight=100,10").option is None
