"""Kernel modules in load order, on made-up trees."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from iotrial.errors import LabError
from iotrial.guest.modules import Modules, content, depends_on


def module(*needs: str) -> bytes:
    """Return the relevant part of a module: the .modinfo strings, among others."""
    return b"\x7fELF\0\0license=GPL\0depends=" + ",".join(needs).encode() + b"\0retpoline=Y\0"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "6.1.0"
    kernel = root / "kernel"
    for path, data in {
        "fs/ext4/ext4.ko": module("mbcache", "jbd2"),
        "fs/mbcache.ko": module(),
        "fs/jbd2/jbd2.ko": module(),
        "md/raid456.ko.xz": lzma.compress(module("async-raid6-recov", "libcrc32c")),
        "crypto/async-raid6-recov.ko.xz": lzma.compress(module("mbcache")),
        "odd/round.ko": module("about"),
        "odd/about.ko": module("round"),
    }.items():
        (kernel / path).parent.mkdir(parents=True, exist_ok=True)
        (kernel / path).write_bytes(data)
    (root / "modules.builtin").write_text("kernel/lib/libcrc32c.ko\nkernel/drivers/virtio/virtio_pci.ko\n")
    return root


def names(tree: Path, *wanted: str) -> list[str]:
    return [path.name.partition(".")[0] for path in Modules(tree).in_order(wanted)]


def test_what_a_module_needs_comes_before_it_and_once(tree: Path) -> None:
    assert names(tree, "ext4") == ["mbcache", "jbd2", "ext4"]
    assert names(tree, "jbd2", "ext4", "ext4") == ["jbd2", "mbcache", "ext4"]
    assert names(tree, "raid456", "ext4") == ["mbcache", "async-raid6-recov", "raid456", "jbd2", "ext4"]


def test_what_is_built_in_is_not_loaded(tree: Path) -> None:
    assert names(tree, "virtio-pci") == []
    assert names(tree, "virtio_pci", "jbd2") == ["jbd2"]


def test_modules_that_need_each_other_end(tree: Path) -> None:
    assert sorted(names(tree, "round")) == ["about", "round"]


def test_a_module_that_a_kernel_does_not_have_is_named_with_the_kernel(tree: Path) -> None:
    with pytest.raises(LabError, match=r"6\.1\.0.*no module bfq, zfs"):
        Modules(tree).in_order(["zfs", "ext4", "bfq"])


def test_a_folder_without_modules_is_told(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="there are no modules"):
        Modules(tmp_path).in_order(["ext4"])


def test_a_packed_module_is_unpacked_and_an_unknown_packing_refused(tree: Path, tmp_path: Path) -> None:
    (packed,) = Modules(tree).in_order(["async_raid6_recov"])[1:]
    assert content(packed) == module("mbcache")
    assert depends_on(module()) == ()
    strange = tmp_path / "x.ko.zst"
    strange.write_bytes(b"")
    with pytest.raises(LabError, match=r"x\.ko\.zst"):
        content(strange)


def test_what_is_wanted_before_is_loaded_before_where_there_is_such_a_thing(tree: Path) -> None:
    kernel = tree / "kernel"
    wants = b"\x7fELF\0softdep=pre: crc32c crypto-md5 aead2\0softdep=pre: jbd2\0depends=mbcache\0"
    (kernel / "fs/ksmbd.ko").write_bytes(wants)
    (kernel / "crypto/crc32c_generic.ko").write_bytes(module())
    (kernel / "crypto/md5.ko").write_bytes(module())
    assert names(tree, "ksmbd") == ["crc32c_generic", "md5", "jbd2", "mbcache", "ksmbd"]
