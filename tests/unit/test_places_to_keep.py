"""What is written for each kind of setting, and where: against the manual pages of the programs that read it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from machine_trees import (
    COMMIT,
    EVERYTHING,
    FSTAB,
    HUGE_PAGES,
    NOATIME,
    READ_AHEAD,
    SCHEDULER,
    SWAPPINESS,
    FakeMachine,
    choice,
    tree,
)

from iotrial.errors import IotrialError, RequestError
from iotrial.knobs.declaration import declarations
from iotrial.tune.applied import FileStep, LiveStep, MountStep, ProfileStep
from iotrial.tune.choice import Choice
from iotrial.tune.places_to_keep import Managed, NotKept, Plan, fstab_edited, mechanism_of, plan, with_option

THP_FILE = "/sys/kernel/mm/transparent_hugepage/enabled"


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tree(tmp_path))


def planned(machine: FakeMachine, *choices: Choice, folder: str | None = "/data/db") -> Plan:
    return plan(machine, choices, folder)


def text_of(found: Plan, path: str) -> str:
    (step,) = [one for one in found.files if one.path == path]
    return step.after.decode()


def test_a_sysctl_is_a_line_in_a_file_that_is_read_last(machine: FakeMachine) -> None:
    found = planned(machine, SWAPPINESS)
    lines = text_of(found, "/etc/sysctl.d/99-zz-iotrial-01234567.conf").split("\n")
    assert [line for line in lines if line and not line.startswith("#")] == ["vm.swappiness = 10"]
    comments = "\n".join(line for line in lines if line.startswith("#"))
    for part in ("01234567", "it takes 10 % less time [-15, -6]", "2026-11-20", "trade-off: costs nothing"):
        assert part in comments
    (rival,) = found.entries[0].rivals
    assert "/usr/lib/sysctl.d/50-default.conf:1 also sets it to 30, and iotrial's wins" in rival


def test_sysctls_of_the_network_and_of_several_numbers_are_kept_too(machine: FakeMachine) -> None:
    found = planned(machine, choice("guest.sysctl", "4194304", key="net.core.rmem_max"))
    assert "net.core.rmem_max = 4194304" in text_of(found, "/etc/sysctl.d/99-zz-iotrial-01234567.conf")


def test_a_disk_is_named_in_its_rule_by_what_outlives_a_reboot(machine: FakeMachine) -> None:
    found = planned(machine, READ_AHEAD)
    text = text_of(found, "/etc/udev/rules.d/99-zz-iotrial-01234567.rules")
    (rule,) = [line for line in text.splitlines() if not line.startswith("#")]
    # brackets would be a pattern of udev's
    assert 'ENV{ID_SERIAL}=="DISK ?B?"' in rule
    assert rule.endswith('ATTR{queue/read_ahead_kb}="1024"')
    assert 'ENV{DEVTYPE}=="disk"' in rule
    assert "sdb" not in rule
    assert not found.warnings


def test_a_partition_leads_to_its_disk(machine: FakeMachine) -> None:
    found = planned(machine, SCHEDULER, folder="/home")
    text = text_of(found, "/etc/udev/rules.d/99-zz-iotrial-01234567.rules")
    assert 'ENV{ID_SERIAL}=="DISK_A"' in text


def test_a_disk_without_a_stable_name_is_warned_about(machine: FakeMachine) -> None:
    machine.at("/run/udev/data/b8:16").unlink()
    found = planned(machine, READ_AHEAD)
    assert 'KERNEL=="sdb"' in text_of(found, "/etc/udev/rules.d/99-zz-iotrial-01234567.rules")
    assert "no serial number" in found.warnings[0]


def test_the_settings_of_a_scheduler_come_back_with_it(machine: FakeMachine) -> None:
    own = machine.at("/sys/block/sdb/queue/iosched")
    own.mkdir(parents=True)
    (own / "fifo_batch").write_text("7\n")
    (own / "async_depth").write_text("48\n")  # not one that iotrial knows
    (step,) = [one for one in planned(machine, SCHEDULER).steps if isinstance(one, LiveStep)]
    step.make(machine)
    (own / "fifo_batch").write_text("16")  # as the kernel does with each change of scheduler
    step.undo(machine)
    assert (own / "fifo_batch").read_text() == "7"
    assert (own / "async_depth").read_text() == "48\n"


def test_the_scheduler_is_set_before_what_it_changes_along(machine: FakeMachine) -> None:
    requests = choice("block.nr_requests", "512")
    found = planned(machine, READ_AHEAD, requests, SCHEDULER)
    live = [step.path.rpartition("/")[2] for step in found.steps if isinstance(step, LiveStep)]
    assert live == ["scheduler", "nr_requests", "read_ahead_kb"]
    rules = [line for line in found.files[0].after.decode().splitlines() if not line.startswith("#")]
    assert ["scheduler" in rules[0], "nr_requests" in rules[1], "read_ahead" in rules[2]] == [True] * 3


def test_huge_pages_are_a_line_that_is_read_first_because_the_first_one_counts(machine: FakeMachine) -> None:
    text = text_of(planned(machine, HUGE_PAGES), "/etc/tmpfiles.d/00-iotrial-01234567.conf")
    assert "w /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n" in text


def test_multi_gen_lru_is_a_line_or_a_part_of_the_profile_of_tuned(machine: FakeMachine) -> None:
    file = "/sys/kernel/mm/lru_gen/enabled"
    machine.at(file).parent.mkdir(parents=True)
    machine.at(file).write_text("0x0007\n")
    found = planned(machine, choice("memory.lru_gen", "0x0000"))
    assert f"w {file} - - - - 0x0000\n" in text_of(found, "/etc/tmpfiles.d/00-iotrial-01234567.conf")
    assert [step.before for step in found.steps if isinstance(step, LiveStep)] == ["0x0007"]
    tuned(machine, "[sysctl]\nvm.swappiness=30\n")
    text = text_of(
        planned(machine, choice("memory.lru_gen", "0x0000")), "/etc/tuned/iotrial-01234567/tuned.conf"
    )
    assert f"{file}=0x0000" in text.partition("[sysfs]\n")[2]


def test_the_governor_of_every_processor_is_set(machine: FakeMachine) -> None:
    for cpu in ("cpu0", "cpu1"):
        file = machine.at(f"/sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor")
        file.parent.mkdir(parents=True)
        file.write_text("powersave")
    found = planned(machine, choice("cpu.governor", "performance"))
    assert (
        "w /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor - - - - performance"
        in found.files[0].after.decode()
    )
    assert sum(isinstance(step, LiveStep) for step in found.steps) == 2


def test_fstab_keeps_every_byte_but_the_options_of_the_mount(machine: FakeMachine) -> None:
    text = text_of(planned(machine, NOATIME, COMMIT), "/etc/fstab")
    ours = [
        line
        for line in text.split("\n")
        if "iotrial" not in line and "trial 0123" not in line and "# mount" not in line
    ]
    assert "\n".join(ours) == FSTAB.replace("defaults,nosuid", "defaults,nosuid,noatime,commit=30")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("/dev/sdb /data ext4 defaults 0 2", "/dev/sdb /data ext4 defaults,noatime 0 2"),
        ("/dev/sdb /data ext4 relatime,ro 0 2", "/dev/sdb /data ext4 ro,noatime 0 2"),
        ("  /dev/sdb\t/data\text4\tnoatime,nodiratime", "  /dev/sdb\t/data\text4\tnoatime"),
        ("/dev/sdb /data ext4", "/dev/sdb /data ext4\tdefaults,noatime"),
        ("/dev/sdb /data/ ext4 rw  0\t0 # x", "/dev/sdb /data/ ext4 rw,noatime  0\t0 # x"),
        ("#/dev/sdb /data ext4 rw 0 0", "#/dev/sdb /data ext4 rw 0 0"),
        ("/dev/sdb /data2 ext4 rw 0 0", "/dev/sdb /data2 ext4 rw 0 0"),
        ("\udcff /data ext4 rw", "\udcff /data ext4 rw,noatime"),
    ],
)
def test_a_line_of_fstab_is_edited_in_place(line: str, expected: str) -> None:
    assert fstab_edited(line, "/data", lambda options: with_option(options, "", "noatime"), ()) == expected


@pytest.mark.parametrize(
    ("options", "about", "words", "expected"),
    [
        ("rw,commit=5", "commit", "commit=30", "rw,commit=30"),
        ("rw,nobarrier", "barrier", "barrier", "rw,barrier"),
        ("discard", "discard", "nodiscard", "nodiscard"),
        ("commit=5", "commit", "", "defaults"),
        ("rw,lazytime,noatime", "lazytime", "lazytime", "rw,noatime,lazytime"),
    ],
)
def test_an_option_takes_the_place_of_its_family(options: str, about: str, words: str, expected: str) -> None:
    assert with_option(options, about, words) == expected


def test_blanks_in_a_mount_point_are_octal_in_fstab(machine: FakeMachine) -> None:
    mounts = machine.at("/proc/self/mountinfo")
    mounts.write_text(mounts.read_text().replace(" /data ", " /my\\040data "))
    fstab = machine.at("/etc/fstab")
    fstab.write_text(FSTAB.replace("/data", "/my\\040data"))
    found = planned(machine, NOATIME, folder="/my data")
    assert "\t/my\\040data\text4\tdefaults,nosuid,noatime\t" in text_of(found, "/etc/fstab")


def test_a_mount_that_a_unit_makes_gets_a_drop_in_with_all_its_options(machine: FakeMachine) -> None:
    machine.at("/etc/fstab").write_text("")
    machine.at("/etc/systemd/system/data.mount").write_text(
        "[Mount]\nWhat=/dev/sdb\nWhere=/data\nOptions=nosuid\n"
    )
    text = text_of(
        planned(machine, NOATIME, COMMIT), "/etc/systemd/system/data.mount.d/50-iotrial-01234567.conf"
    )
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "[Mount]",
        "Options=nosuid,noatime,commit=30",
    ]


def test_tuned_when_active_gets_a_profile_that_includes_the_present_one(machine: FakeMachine) -> None:
    tuned(machine, "[sysctl]\nvm.swappiness=30\n")
    found = planned(machine, SWAPPINESS, HUGE_PAGES)
    text = text_of(found, "/etc/tuned/iotrial-01234567/tuned.conf")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines[0] == "[main]"
    assert lines[2:] == [
        "include=mine",
        "[sysctl]",
        "vm.swappiness=10",
        "[vm]",
        "transparent_hugepages=never",
    ]
    (switch,) = [step for step in found.steps if isinstance(step, ProfileStep)]
    assert (switch.before, switch.after) == ("mine", "iotrial-01234567")
    machine.at("/run/tuned/tuned.pid").unlink()
    assert not any(isinstance(step, ProfileStep) for step in planned(machine, SWAPPINESS).steps)


def test_a_disk_that_tuned_sets_gets_a_section_of_its_own(machine: FakeMachine) -> None:
    tuned(machine, "[disk]\nreadahead=>4096\napm=254\n")
    text = text_of(planned(machine, READ_AHEAD), "/etc/tuned/iotrial-01234567/tuned.conf")
    section = [
        line for line in text.partition("[disk_sdb]")[2].splitlines() if line and not line.startswith("#")
    ]
    assert section == [
        "type=disk",
        "priority=-1",
        r"devices_udev_regex=(ID_SERIAL=DISK\ \[B\])",
        "apm=254",
        "readahead=1024",
    ]


def tuned(machine: FakeMachine, text: str) -> None:
    files = {
        "/run/tuned/tuned.pid": "1\n", "/etc/tuned/active_profile": "mine\n", "/etc/tuned/profile_mode": "auto\n",
        "/etc/tuned/tuned-main.conf": "reapply_sysctl = 1\n", "/usr/lib/tuned/base/tuned.conf": text,
        "/etc/tuned/mine/tuned.conf": "[main]\ninclude=base\n",
    }  # fmt: skip
    for path, content in files.items():
        machine.at(path).parent.mkdir(parents=True, exist_ok=True)
        machine.at(path).write_text(content)


# who else sets the same


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("etc/sysctl.d/99-zzz.conf", "vm.swappiness = 5\n", "wins over iotrial's"),
        ("etc/sysctl.d/99-sysctl.conf", "vm/swappiness=5\n", "iotrial's wins"),
        ("run/sysctl.d/10-x.conf", "-vm.swap* = 5\n", "iotrial's wins"),
        ("etc/sysctl.conf", "vm.swappiness=5\n", "not read at boot"),
        ("proc/cmdline", "quiet sysctl.vm.swappiness=5", "iotrial's wins"),
        ("etc/rc.local", "#!/bin/sh\nsysctl vm.swappiness=5\n", "wins over iotrial's"),
    ],
)
def test_other_settings_of_a_sysctl_are_found(machine: FakeMachine, path: str, text: str, said: str) -> None:
    machine.at(f"/{path}").parent.mkdir(exist_ok=True, parents=True)
    machine.at(f"/{path}").write_text(text)
    rivals = [one for one in planned(machine, SWAPPINESS).entries[0].rivals if "50-default" not in one]
    assert len(rivals) == 1
    assert said in rivals[0]


def test_a_file_in_etc_hides_one_of_the_same_name_and_comments_do_not_count(machine: FakeMachine) -> None:
    machine.at("/etc/sysctl.d/50-default.conf").write_text("# vm.swappiness = 5\n; vm.swappiness=4\n")
    assert planned(machine, SWAPPINESS).entries[0].rivals == ()


def test_a_limit_in_bytes_competes_with_the_one_in_percent(machine: FakeMachine) -> None:
    machine.at("/etc/sysctl.d/50-x.conf").write_text("vm.dirty_bytes = 1000000\n")
    (rival,) = planned(machine, choice("sysctl", "10", key="vm.dirty_ratio")).entries[0].rivals
    assert "50-x.conf:1" in rival


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ('SUBSYSTEM=="block", ATTR{queue/read_ahead_kb}="64"', True),
        ('SUBSYSTEM=="block", KERNEL=="nvme*", ATTR{queue/read_ahead_kb}="64"', False),
        ('KERNEL=="sd[a-z]|vd*", ATTR{queue/rotational}=="1", ATTR{bdi/read_ahead_kb}="64"', True),
        ('KERNEL=="sd[a-z]", ATTR{queue/rotational}=="0", ATTR{queue/read_ahead_kb}="64"', False),
        ('ENV{ID_SERIAL}=="OTHER", ATTR{queue/read_ahead_kb}="64"', False),
        ('KERNEL=="sdb", \\\n  ATTR{queue/read_ahead_kb}="64"', True),
        ('# KERNEL=="sdb", ATTR{queue/read_ahead_kb}="64"', False),
        ('KERNEL!="sdb", ATTR{queue/read_ahead_kb}="64"', False),
    ],
)
def test_other_rules_are_found_if_they_can_match_the_disk(
    machine: FakeMachine, rule: str, found: bool
) -> None:
    machine.at("/etc/udev/rules.d/60-other.rules").write_text(rule + "\n")
    assert bool(planned(machine, READ_AHEAD).entries[0].rivals) is found


def test_a_rule_that_is_read_later_wins(machine: FakeMachine) -> None:
    rule = 'SUBSYSTEM=="block", ATTR{queue/read_ahead_kb}="64"\n'
    machine.at("/run/udev/rules.d").mkdir(parents=True)
    machine.at("/run/udev/rules.d/99-zzz.rules").write_text(rule)
    (rival,) = planned(machine, READ_AHEAD).entries[0].rivals
    assert "wins over iotrial's" in rival


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("etc/tmpfiles.d/zz.conf", "w /sys/kernel/mm/transparent_hugepage/enabled - - - - always\n", "iotrial's wins"),
        ("etc/systemd/system/thp.service", f"ExecStart=sh -c 'echo always > {THP_FILE}'\n", "and wins"),
        ("proc/cmdline", "transparent_hugepage=always", "iotrial's wins"),
    ],
)  # fmt: skip
def test_other_writers_of_huge_pages_are_found(machine: FakeMachine, path: str, text: str, said: str) -> None:
    machine.at(f"/{path}").write_text(text)
    (rival,) = planned(machine, HUGE_PAGES).entries[0].rivals
    assert said in rival


# refusals: nothing is changed, and the message names file and owner


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (choice("mkfs.option", "-O ^has_journal"), "choose it when the file system"),
        (choice("filesystem.type", "xfs"), "choose it when the file system"),
        (choice("command.argument", "9"), "the script or unit that starts the command"),
        (choice("process.nice", "5"), "the script or unit that starts the command"),
        (choice("work.option", "4k", option="block_size"), "the script or unit that starts the command"),
        (choice("cache.state", "warm"), "no system setting"),
        (choice("file.mode", "0444"), "no system setting"),
        (choice("guest.memory", "1 GiB"), "no system setting"),
        (choice("no.such", "1"), "no system setting"),
    ],
)
def test_a_setting_without_a_place_is_refused_with_the_reason(setting: Choice, said: str) -> None:
    with pytest.raises(NotKept, match=said):
        mechanism_of(setting)


def test_every_knob_either_has_a_mechanism_or_a_reason() -> None:
    kept, reasons = [], []
    for name in declarations():
        try:
            mechanism_of(choice(name, "x"))
            kept.append(name)
        except NotKept as error:
            reasons.append(error.message)
    assert all("cannot be kept: " in reason for reason in reasons)
    assert {
        "sysctl",
        "guest.sysctl",
        "block.scheduler",
        "bdi.max_ratio",
        "memory.huge_pages",
        "cpu.governor",
    } <= set(kept)


@pytest.mark.parametrize(
    "setting",
    [
        choice("sysctl", "10\nkernel.core_pattern = |/x", key="vm.swappiness"),
        choice("sysctl", "1", key="kernel.core_pattern"),
        choice("block.scheduler", 'x", RUN+="/bin/sh'),
        choice("block.read_ahead_kb", '1", RUN+="x'),
        choice("mount.option", "commit=5,suid", option="commit"),
        choice("mount.atime", "noatime 0 0\n/x"),
        choice("memory.huge_pages", "x"),
    ],
)
def test_a_value_that_the_knob_would_not_take_never_reaches_a_file(
    machine: FakeMachine, setting: Choice
) -> None:
    with pytest.raises(IotrialError):
        planned(machine, setting)


def test_line_breaks_in_labels_of_a_foreign_trial_stay_in_the_comment(machine: FakeMachine) -> None:
    bad = choice(
        "sysctl", "10", key="vm.swappiness", level="10\nkernel.x = 1", effect="e", was="1\nkernel.y=1"
    )
    lines = planned(machine, bad).files[0].after.decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["vm.swappiness = 10"]


def test_an_option_that_needs_a_new_mount_cannot_be_tried_first(machine: FakeMachine) -> None:
    with pytest.raises(NotKept, match="does not set option data"):
        planned(machine, choice("mount.option", "data=writeback", option="data"))


def test_a_mount_that_nobody_configures_is_refused(machine: FakeMachine) -> None:
    machine.at("/etc/fstab").write_text("")
    with pytest.raises(NotKept, match="/etc/fstab nor a mount unit has /data"):
        planned(machine, NOATIME)


def test_a_setting_of_a_disk_needs_a_folder(machine: FakeMachine) -> None:
    with pytest.raises(RequestError) as caught:
        planned(machine, READ_AHEAD, folder=None)
    assert "--in FOLDER" in str(caught.value.hint)


def test_a_network_file_system_has_no_queue(machine: FakeMachine) -> None:
    with pytest.raises(NotKept, match="no queue"):
        planned(machine, READ_AHEAD, folder="/net")


def test_a_machine_without_udev_or_tmpfiles_says_so(tmp_path: Path) -> None:
    bare = FakeMachine(tree(tmp_path, systemd=False, udev=False))
    with pytest.raises(NotKept, match="no udev"):
        planned(bare, READ_AHEAD)
    for path in sorted(bare.at("/usr/lib/tmpfiles.d").iterdir()):
        path.unlink()
    bare.at("/usr/lib/tmpfiles.d").rmdir()
    with pytest.raises(NotKept, match="no systemd-tmpfiles"):
        planned(bare, HUGE_PAGES)
    assert planned(bare, SWAPPINESS).files


@pytest.mark.parametrize(
    "head",
    [
        "# Ansible managed: x.j2\n",
        "# This file is managed by Puppet. Do not edit.\n",
        "## MANAGED BY CHEF ##\n",
    ],
)
def test_a_file_that_configuration_management_writes_is_refused(machine: FakeMachine, head: str) -> None:
    machine.at("/etc/fstab").write_text(head + FSTAB)
    with pytest.raises(Managed) as caught:
        planned(machine, NOATIME)
    assert "/etc/fstab" in caught.value.message
    assert head.strip(" #\n")[:10] in caught.value.message


def test_a_link_into_the_store_of_nix_is_refused(machine: FakeMachine) -> None:
    machine.at("/etc/sysctl.d").rmdir()
    machine.at("/etc/sysctl.d").symlink_to("/nix/store/abc-etc/sysctl.d")
    with pytest.raises(Managed, match=r"/etc/sysctl.d is a link to /nix/store/.*NixOS"):
        planned(machine, SWAPPINESS)


def test_a_linked_fstab_is_refused(machine: FakeMachine) -> None:
    machine.at("/etc/fstab").rename(machine.at("/etc/real-fstab"))
    machine.at("/etc/fstab").symlink_to("real-fstab")
    with pytest.raises(Managed, match="link to real-fstab"):
        planned(machine, NOATIME)


def test_a_read_only_file_system_is_named(machine: FakeMachine) -> None:
    mounts = machine.at("/proc/self/mountinfo")
    mounts.write_text(mounts.read_text() + "50 22 0:50 / /etc ro,relatime - squashfs /dev/loop0 ro\n")
    with pytest.raises(
        Managed,
        match=r"01234567\.conf cannot be written: /etc/sysctl\.d is on a read-only",
    ):
        planned(machine, SWAPPINESS)


def test_the_kernel_is_set_before_files_are_written(machine: FakeMachine) -> None:
    kinds = [type(step) for step in planned(machine, *EVERYTHING).steps]
    first_file = kinds.index(FileStep)
    assert all(kind in (LiveStep, MountStep) for kind in kinds[:first_file])
    assert LiveStep not in kinds[first_file:]


def test_a_prepared_tree_never_reaches_outside(machine: FakeMachine) -> None:
    assert os.path.commonpath([machine.at("/etc/fstab"), machine.root]) == str(machine.root)


def test_an_access_time_mode_is_kept_as_the_trial_had_it(machine: FakeMachine) -> None:
    """A trial sets nodiratime and lazytime on top of strictatime."""
    found = planned(machine, choice("mount.atime", "lazytime"))
    assert "defaults,nosuid,strictatime,lazytime" in text_of(found, "/etc/fstab")
    assert [(s.option, s.after) for s in found.steps if isinstance(s, MountStep)] == [
        ("", "strictatime"),
        ("lazytime", "lazytime"),
    ]
    found = planned(machine, choice("mount.atime", "nodiratime"))
    assert "defaults,nosuid,strictatime,nodiratime" in text_of(found, "/etc/fstab")


def test_an_alias_of_an_option_is_written_as_the_kernel_shows_it(machine: FakeMachine) -> None:
    found = planned(machine, choice("mount.option", "barrier=0", option="barrier"))
    (step,) = [one for one in found.steps if isinstance(one, MountStep)]
    assert (step.before, step.after) == ("barrier", "nobarrier")


def test_the_default_of_an_option_takes_it_out_of_fstab(machine: FakeMachine) -> None:
    machine.at("/etc/fstab").write_text(FSTAB.replace("defaults,nosuid", "nosuid,commit=60"))
    found = planned(machine, choice("mount.option", "default", option="commit"))
    assert "\tnosuid\t" in text_of(found, "/etc/fstab")
    (step,) = [one for one in found.steps if isinstance(one, MountStep)]
    assert step.after == "commit=5"
