"""Verify that mke2fs applied its options, by comparing them with the superblock as dumpe2fs shows it."""

from __future__ import annotations

import re

UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: names of features in mke2fs that differ in the superblock
SAME_FEATURE = {"extents": "extent", "sparse_super2": "sparse_super2", "quotas": "quota"}
#: options that the superblock shows with their value unchanged
PLAIN = {
    "-b": "Block size",
    "-I": "Inode size",
    "-G": "Flex block group size",
    "-E stride": "RAID stride",
    "-E stripe_width": "RAID stripe width",
}


def about(option: str) -> tuple[str, ...]:
    """Return the topics of an option. Two options with a topic in common contradict each other or say the same."""
    flag, _, rest = option.partition(" ")
    if flag == "-O":
        return tuple(f"-O {_feature(word)}" for word in rest.split(","))
    return (f"{flag} {rest.partition('=')[0]}",) if "=" in rest else (flag,)


def contradicts(option: str, dump: str) -> str | None:
    """Return in words how the superblock (``dump``: the output of ``dumpe2fs -h``) differs from an option; None if it does
    not, or does not show it."""
    fields = dict(re.findall(r"^([^:\n]+):[ \t]*(.*)$", dump, re.MULTILINE))
    flag, _, rest = option.partition(" ")
    key = about(option)[0]
    if key in PLAIN:
        found = fields.get(PLAIN[key], "none")
        return None if found == rest.rpartition("=")[2] else f"{PLAIN[key]}: {found}"
    if flag == "-O":
        return _features(rest.split(","), fields.get("Filesystem features", "").split())
    if flag == "-J":
        return _journal(int(rest.partition("=")[2]), fields)
    if flag == "-m":
        return _share(int(rest), fields)
    return _inodes(int(rest), fields) if flag == "-i" else None


def _feature(word: str) -> str:
    word = word.removeprefix("^")
    return SAME_FEATURE.get(word, word)


def _features(wanted: list[str], found: list[str]) -> str | None:
    for word in wanted:
        if (_feature(word) in found) == word.startswith("^"):
            return f"Filesystem features: {' '.join(found) or 'none'}"
    return None


def _journal(wanted_mib: int, fields: dict[str, str]) -> str | None:
    text = fields.get("Total journal size", fields.get("Journal size", "none"))
    found = re.fullmatch(r"([0-9]+)([kMG]?)", text)
    same = found is not None and int(found[1]) * UNITS[found[2]] == wanted_mib << 20
    return None if same else f"Total journal size: {text}"


def _share(per_cent: int, fields: dict[str, str]) -> str | None:
    blocks, kept = int(fields.get("Block count", "0")), int(fields.get("Reserved block count", "-1"))
    return None if abs(kept - blocks * per_cent / 100) <= 1 else f"Reserved block count: {kept} of {blocks}"


def _inodes(bytes_each: int, fields: dict[str, str]) -> str | None:
    """Check the inode count. mke2fs fills each group's last block of inodes: up to eight blocks of inodes more per group."""
    size = int(fields.get("Block count", "0")) * int(fields.get("Block size", "0"))
    inodes, each = int(fields.get("Inode count", "0")), int(fields.get("Inodes per group", "0") or 0)
    groups = inodes // each if each else 1
    slack = (
        groups * 8 * max(1, int(fields.get("Block size", "0")) // int(fields.get("Inode size", "128") or 128))
    )
    wanted = size // bytes_each
    return None if wanted * 0.99 - slack <= inodes <= wanted + slack else f"Inode count: {inodes}"
