"""The suite's leak check, on made-up machine states."""

from __future__ import annotations

from left_behind import left_by_tests

BEFORE = {"mounts": "/ ext4", "loop0 read_ahead_kb": "128", "vm.swappiness": "60", "run folder": "False"}


def test_what_is_as_before_is_no_damage() -> None:
    assert left_by_tests(BEFORE, dict(BEFORE)) == {}


def test_a_setting_a_mount_an_image_and_a_folder_that_are_left_are_damage() -> None:
    for key, value in (
        ("mounts", "/ ext4\n/mnt ext4"),
        ("loop0 read_ahead_kb", "4096"),
        ("loop0 backing", "/var/tmp/image"),
        ("vm.swappiness", "10"),
        ("run folder", "True"),
    ):
        assert left_by_tests(BEFORE, {**BEFORE, key: value}) == {key: (BEFORE.get(key), value)}


def test_a_write_cache_that_attaching_turns_on_is_none_and_one_that_is_left_off_is() -> None:
    through, back = {"loop0 write_cache": "write through"}, {"loop0 write_cache": "write back"}
    assert left_by_tests({**BEFORE, **through}, {**BEFORE, **back}) == {}
    assert left_by_tests({**BEFORE, **back}, {**BEFORE, **through}).keys() == {"loop0 write_cache"}
    disk = {"sda write_cache": "write through"}
    assert left_by_tests(disk, {"sda write_cache": "write back"}) != {}


def test_what_is_gone_is_damage_but_for_the_folder_of_a_trial_that_was_cut_off() -> None:
    held = {**BEFORE, "loop1 backing": "/home/anna/disk.img", "run folder": "True"}
    assert left_by_tests(held, {**held, "run folder": "False"}) == {}
    assert left_by_tests(held, BEFORE) == {"loop1 backing": ("/home/anna/disk.img", None)}


def test_a_loop_device_that_the_kernel_has_added_is_none_unless_something_is_attached_to_it() -> None:
    added = {**BEFORE, "loop7 read_ahead_kb": "4096"}
    assert left_by_tests(BEFORE, added) == {}
    attached = {**added, "loop7 backing": "/var/tmp/image"}
    assert left_by_tests(BEFORE, attached) == {"loop7 backing": (None, "/var/tmp/image")}


def test_read_ahead_of_a_first_attach_is_excused_only_where_tests_attach_devices_themselves() -> None:
    before = {"mounts": "", "loop0 rotational": "0", "loop0 read_ahead_kb": "128"}
    after = {"mounts": "", "loop0 rotational": "1", "loop0 read_ahead_kb": "2560"}
    assert left_by_tests(before, after).keys() == {"loop0 rotational", "loop0 read_ahead_kb"}
    assert left_by_tests(before, after, stand_ins=True) == {}
    assert left_by_tests(before, {**after, "loop0 rotational": "0"}, stand_ins=True) != {}
    assert left_by_tests(before, {**after, "loop0 read_ahead_kb": "64"}, stand_ins=True) != {}
