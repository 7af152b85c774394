"""Whether ext4 was made as it was asked for: options of mke2fs held against what dumpe2fs reads back from the superblock."""

from __future__ import annotations

import re

UNITS = {"": 1, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: names that mke2fs takes for a feature that the superblock has under another one
SAME_FEATURE = {"extents": "extent", "sparse_super2": "sparse_super2", "quotas": "quota"}
#: options that the superblock has as they are
PLAIN = {
    "-b": "Block size",
    "-I": "Inode size",
    "-G": "Flex block group size",
    "-E stride": "RAID stride",
    "-E stripe_width": "RAID stripe width",
}


def about(option: str) -> tuple[str, ...]:
    """What an option decides; two options that share one of these contradict each other or say the same."""
    flag, _, rest = option.partition(" ")
    if flag == "-O":
        return tuple(f"-O {_feature(word)}" for word in rest.split(","))
    return (f"{flag} {rest.partition('=')[0]}",) if "=" in rest else (flag,)


def contradicts(option: str, told: str) -> str | None:
    """What the superblock (``told``: the text of ``dumpe2fs -h``) has otherwise than the option wants, in words; None where
    it is as wanted, or does not say."""
    fields = dict(re.findall(r"^([^:\n]+):[ \t]*(.*)$", told, re.MULTILINE))
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
    """mke2fs fills up each group's last block of inodes: more than asked for by at most eight blocks of them a group."""
    size = int(fields.get("Block count", "0")) * int(fields.get("Block size", "0"))
    inodes, each = int(fields.get("Inode count", "0")), int(fields.get("Inodes per group", "0") or 0)
    groups = inodes // each if each else 1
    slack = (
        groups * 8 * max(1, int(fields.get("Block size", "0")) // int(fields.get("Inode size", "128") or 128))
    )
    wanted = size // bytes_each
    return None if wanted * 0.99 - slack <= inodes <= wanted + slack else f"Inode count: {inodes}"
