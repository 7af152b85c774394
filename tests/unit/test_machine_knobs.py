"""Guest machine knobs: accepted values, read-back, and the machine that they define together."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iotrial.errors import IotrialError
from iotrial.lab import registry
from iotrial.lab.journal import Journal
from iotrial.runner.guest import DEFAULT_KERNEL, MachineSpec
from iotrial.study.model import Setting

MEMINFO = "MemTotal:  {} kB\nMemFree: 1 kB\n"


def read(name: str, value: str, files: dict[str, str], besides: int = 0) -> str:
    subject: Any = SimpleNamespace(target=SimpleNamespace(read=files.__getitem__), memory_besides=besides)
    return registry.knob(name).read(subject, Setting(name, value))


@pytest.mark.parametrize(
    ("name", "value", "parsed"),
    [
        ("kernel.version", "6.12", "6.12"),
        ("kernel.version", "6.12.117", "6.12.117"),
        ("guest.memory", "1024 MiB", "1 GiB"),
        ("guest.processors", "4", "4"),
    ],
)
def test_what_is_accepted(name: str, value: str, parsed: str) -> None:
    assert registry.knob(name).parse(Setting(name, value)) == parsed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel.version", "latest"),
        ("kernel.version", "6"),
        ("kernel.version", "6.12/../.."),
        ("kernel.version", "-6.1"),
        ("guest.memory", "64 MiB"),
        ("guest.memory", "1000001 KiB"),
        ("guest.memory", "much"),
        ("guest.processors", "0"),
        ("guest.processors", "65"),
    ],
)
def test_what_is_refused(name: str, value: str) -> None:
    with pytest.raises(IotrialError) as caught:
        registry.knob(name).parse(Setting(name, value))
    assert name in caught.value.message


def test_a_kernel_is_read_back_as_finely_as_it_was_asked_for() -> None:
    files = {"/proc/sys/kernel/osrelease": "6.12.117+deb12-cloud-amd64"}
    assert read("kernel.version", "6.12", files) == "6.12"
    assert read("kernel.version", "6.1", files) == "6.12"
    assert read("kernel.version", "6.12.100", files) == "6.12.117"


def test_memory_is_what_the_kernel_leaves_of_it_and_of_that_of_modelled_disks() -> None:
    files = {"/proc/meminfo": MEMINFO.format(470_000)}
    assert read("guest.memory", "512 MiB", files) == "512 MiB"
    assert read("guest.memory", "1 GiB", files) != "1 GiB"
    assert read("guest.memory", "256 MiB", files) != "256 MiB"
    assert read("guest.memory", "256 MiB", files, besides=256 << 20) == "256 MiB"


def test_processors_are_counted_by_their_own_lines() -> None:
    files = {"/proc/stat": "cpu  1 2\ncpu0 1 2\ncpu1 1 2\nintr 5\n"}
    assert read("guest.processors", "2", files) == "2"


def test_what_no_knob_wants_is_as_it_always_is() -> None:
    assert MachineSpec.of({}) == MachineSpec(DEFAULT_KERNEL, 512, 1)
    assert MachineSpec.of({"guest.memory": "1 GiB"}) == MachineSpec(DEFAULT_KERNEL, 1024, 1)
    assert MachineSpec.of({"kernel.version": "6.1", "guest.processors": "2"}) == MachineSpec("6.1", 512, 2)


CPUS = "/sys/devices/system/cpu"


class Cpus:
    """Processors with governors, and one that is offline and has none."""

    def __init__(self) -> None:
        self.files = {f"{CPUS}/cpu{number}/cpufreq/scaling_governor": "schedutil\n" for number in (0, 1, 10)}

    def call(self, verb: str, **fields: object) -> dict[str, Any]:
        assert (verb, fields) == ("list", {"path": CPUS})
        return {"names": ["cpu0", "cpu1", "cpu10", "cpu2", "cpufreq", "cpuidle", "online"]}

    def exists(self, path: str) -> bool:
        return path in self.files

    def read(self, path: str) -> str:
        return "performance schedutil" if path.endswith("available_governors") else self.files[path].rstrip()

    def read_or_none(self, path: str) -> str | None:
        return self.files.get(path)

    def write(self, path: str, data: str) -> None:
        assert path in self.files
        self.files[path] = f"{data}\n"


def test_a_governor_is_set_on_every_processor_that_has_one_and_undone_one_by_one(tmp_path: Path) -> None:
    cpus, journal = Cpus(), Journal(tmp_path / "journal")
    cpus.files[f"{CPUS}/cpu10/cpufreq/scaling_governor"] = "powersave\n"
    before = dict(cpus.files)
    subject: Any = SimpleNamespace(target=cpus, journal=journal, boot_id="b", trial="t")
    knob, setting = registry.knob("cpu.governor"), Setting("cpu.governor", "performance")
    assert knob.levels(subject, setting) == ("performance", "schedutil")
    knob.prepare(subject, setting, ("performance", "schedutil"))
    knob.write(subject, setting, "performance")
    knob.verify(subject, setting, "performance")
    assert set(cpus.files.values()) == {"performance\n"}
    for entry in journal.pending():
        knob.undo(cpus, entry)  # type: ignore[arg-type]
    assert {path: text.strip() for path, text in cpus.files.items()} == {
        p: t.strip() for p, t in before.items()
    }


def test_a_machine_without_governors_says_so() -> None:
    cpus = Cpus()
    cpus.files.clear()
    with pytest.raises(IotrialError, match="have no governor"):
        registry.knob("cpu.governor").paths(SimpleNamespace(target=cpus), Setting("cpu.governor", "x"))  # type: ignore[attr-defined]
