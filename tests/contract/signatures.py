"""Hand-made superblocks of formats that no program here can create. The tests first check that blkid
recognises each."""

from __future__ import annotations

import struct
import zlib


def lvm(size: int) -> dict[int, bytes]:
    body = struct.pack("<I8s32s", 32, b"LVM2 001", b"abcdefghijklmnopqrstuvwxyz012345").ljust(492, b"\0")
    crc = zlib.crc32(body, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    return {512: b"LABELONE" + struct.pack("<QI", 1, crc) + body}


def raid_1_2(size: int) -> dict[int, bytes]:
    block = bytearray(256)
    struct.pack_into("<4I16s32s", block, 0, 0xA92B4EFC, 1, 0, 0, b"u" * 16, b"host:0")
    struct.pack_into("<II", block, 72, 1, 0)  # level, layout
    struct.pack_into("<QQQ", block, 128, 2048, size // 512 - 2048, 8)  # data offset, size, super offset
    total = sum(struct.unpack("<64I", block))
    struct.pack_into("<I", block, 216, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)
    return {4096: bytes(block)}


def raid_0_90(size: int) -> dict[int, bytes]:
    words = [0] * 1024
    words[:8] = [0xA92B4EFC, 0, 90, 0, 0, 0x11111111, 0, 1]
    words[13:16] = [0x22222222, 0x33333333, 0x44444444]
    total = sum(words)
    words[38] = ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF
    return {(size & ~0xFFFF) - 0x10000: struct.pack("<1024I", *words)}


def luks(size: int) -> dict[int, bytes]:
    block = bytearray(592)
    block[:8] = b"LUKS\xba\xbe\0\1"
    block[168:204] = b"12345678-1234-1234-1234-123456789abc"
    return {0: bytes(block)}


def zfs(size: int) -> dict[int, bytes]:
    return {128 * 1024 + number * 1024: struct.pack("<4Q", 0xBAB10C, 5000, 1, 1) for number in range(64)}


def gpt(size: int) -> dict[int, bytes]:
    last = size // 512 - 1
    entries = bytearray(128 * 128)
    struct.pack_into("<16s16sQQ", entries, 0, b"t" * 16, b"g" * 16, 2048, 4095)
    header = struct.pack(
        "<8s4I4Q16sQ3I", b"EFI PART", 0x10000, 92, 0, 0, 1, last, 34, last - 33, b"d" * 16, 2, 128, 128,
        zlib.crc32(bytes(entries)),
    )  # fmt: skip
    header = header[:16] + struct.pack("<I", zlib.crc32(header)) + header[20:]
    protective = bytes(446) + struct.pack("<8B2I", 0, 0, 2, 0, 0xEE, 255, 255, 255, 1, last) + bytes(48)
    return {0: protective + b"\x55\xaa", 512: header, 1024: bytes(entries)}


def mbr(size: int) -> dict[int, bytes]:
    entry = struct.pack("<8B2I", 0x80, 0, 2, 0, 0x83, 255, 255, 255, 2048, 4096)
    return {0: bytes(440) + b"disk\0\0" + entry + bytes(48) + b"\x55\xaa"}


def vfat(size: int) -> dict[int, bytes]:
    boot = bytearray(512)
    struct.pack_into("<3s8sHBHBHHBHHHII", boot, 0, b"\xeb\x3c\x90", b"mkfs.fat", 512, 4, 4, 2, 512, 0, 0xF8, 64, 32, 2, 0,
                     size // 512)  # fmt: skip
    struct.pack_into("<BBBI11s8s", boot, 36, 0x80, 0, 0x29, 0x12345678, b"NO NAME    ", b"FAT16   ")
    boot[510:] = b"\x55\xaa"
    return {0: bytes(boot), 2048: b"\xf8\xff\xff\xff"}


def iso9660(size: int) -> dict[int, bytes]:
    descriptor = bytearray(2048)
    descriptor[:7] = b"\x01CD001\x01"
    descriptor[40:72] = b"DISC".ljust(32)
    return {32768: bytes(descriptor), 34816: b"\xffCD001\x01"}


def bcache(size: int) -> dict[int, bytes]:
    magic = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
    body = struct.pack("<QQ16s16s16s", 8, 1, magic, b"u" * 16, b"s" * 16).ljust(200, b"\0")
    return {4096: struct.pack("<Q", _crc64(body)) + body}


def _crc64(data: bytes) -> int:
    """Return the CRC-64 of ECMA-182, most significant bit first, inverted at both ends: the kernel's crc64_be
    as bcache uses it."""
    mask = (1 << 64) - 1
    crc = mask
    for byte in data:
        crc ^= byte << 56
        for _ in range(8):
            crc = ((crc << 1) ^ 0x42F0E1EBA9EA3693) & mask if crc >> 63 else (crc << 1) & mask
    return crc ^ mask


#: blkid's name: function that makes it
BY_HAND = {
    "LVM2_member": lvm,
    "linux_raid_member (1.2)": raid_1_2,
    "linux_raid_member (0.90)": raid_0_90,
    "crypto_LUKS": luks,
    "zfs_member": zfs,
    "gpt": gpt,
    "dos": mbr,
    "vfat": vfat,
    "iso9660": iso9660,
    "bcache": bcache,
}
