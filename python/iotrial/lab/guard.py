"""Safety checks before a disk becomes a lab: the one place where a user's data could be at stake.

A disk is accepted only if the user has named it twice (by path and by serial number or WWN) and every check passes:
neither the disk nor a partition is in use, it carries no known signature, and it is empty. It is claimed first and
inspected through the claim, so that the disk that was checked is the disk that is used. It is not opened for writing
until all checks have passed.
"""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.errors import IotrialError, MissingTool, ProbeError, RequestError, TargetError
from iotrial.lab import disk_identity
from iotrial.lab.target import Target
from iotrial.polling import attempts

SAMPLES = 4096
EDGE_BYTES = 4 << 20
BLOCK_BYTES = 4096
#: programs that inspect new disks hold them open for a moment
LOOKED_AT_WITHIN_S = 2.0
BLKID_FOUND_NOTHING = 2
LOOK_IT_UP = (
    "find it with `lsblk -o NAME,SERIAL,WWN,SIZE,MOUNTPOINTS`, then give --device PATH --erase SERIAL-OR-WWN"
)


@dataclass(frozen=True, slots=True)
class Consent:
    """The user's consent to erase a disk. ``path`` None: a resumed trial, which finds its disk by ``name``."""

    path: str | None
    name: str
    discard_contents: bool = False

    @property
    def resumed(self) -> bool:
        """True if the consent was given to an earlier part of the same trial."""
        return self.path is None


@dataclass(frozen=True, slots=True)
class Disk:
    """A claimed disk that has passed all checks.

    ``descriptor`` is a path that leads to the claimed disk even if its name changes; ``name`` is the name in the consent.
    """

    device: str
    number: str
    name: str
    model: str
    size_bytes: int
    sector_bytes: int
    descriptor: str


def consent(device: str | None, erase: str | None, *, discard_contents: bool) -> Consent | None:
    """Build the consent from the options; None if none is given. Raises RequestError if one is missing."""
    if device is None and erase is None and not discard_contents:
        return None
    if device is None or not device:
        raise RequestError("a device lab: --device is missing, the path of the disk", hint=LOOK_IT_UP)
    if erase is None or not erase.strip():
        raise RequestError(
            f"a device lab on {device}: --erase is missing, the serial number or WWN of the disk that may be erased",
            hint=LOOK_IT_UP,
        )
    return Consent(device, erase.strip(), discard_contents)


def whole_blocks(size_bytes: int) -> int:
    """Round up to whole blocks."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def claim(target: Target, consent: Consent, lab_bytes: int, *, node: str | None = None) -> Disk:
    """Claim the disk for the lifetime of the probe and check it.

    The lab uses ``lab_bytes`` from the start of the disk, and one block behind them for its mark. Raises RequestError
    (or MissingTool) if a check fails; the disk is then released unchanged.
    """
    path = consent.path or _found_again(target, consent.name)
    try:
        answer = target.call("device_claim", path=path, node=node)
    except TargetError as error:
        raise RequestError(f"--device {path}: {error.message}", hint=error.hint) from error
    except ProbeError as error:
        if not error.message.startswith("device_claim:"):
            raise
        raise RequestError(f"--device {path}: {error.message.partition(': ')[2]}") from error
    device, number = str(answer["device"]), ":".join(map(str, answer["rdevice"]))
    try:
        known = disk_identity.names_of(target, number)
        _check_identity(target, consent, path, device, known)
        _check_shape(path, answer, lab_bytes)
        _check_unused(target, path, device)
        _check_signatures(target, path, str(answer["descriptor"]))
        _check_empty(target, consent, path, device, lab_bytes)
        _check_unused(target, path, device)
    except IotrialError:  # after a signal the probe ends, and the claim with it
        target.call("device_close", device=device)
        raise
    return Disk(
        device=device,
        number=number,
        name=consent.name,
        model=known.model,
        size_bytes=int(answer["size"]),
        sector_bytes=int(answer["sector"]),
        descriptor=str(answer["descriptor"]),
    )


def _found_again(target: Target, name: str) -> str:
    found = disk_identity.disks_named(target, name)
    if len(found) != 1:
        raise RequestError(
            f"the disk of this trial ({name}): expected one, found {' and '.join(found) or 'none'}",
            hint="plug it in again" if not found else None,
        )
    return f"/dev/{found[0]}"


def _check_identity(
    target: Target, consent: Consent, path: str, device: str, known: disk_identity.Names
) -> None:
    if not known.names:
        raise RequestError(
            f"--device {path} ({device}): it has no serial number and no WWN, so it cannot be identified",
            hint="only a disk that can be identified is erased",
        )
    if disk_identity.normal(consent.name) not in known.names:
        raise RequestError(
            f'--erase "{consent.name}": not the serial number or WWN of {path} ({device})', hint=LOOK_IT_UP
        )
    others = [other for other in disk_identity.disks_named(target, consent.name) if other != device]
    if others:
        raise RequestError(
            f'--erase "{consent.name}": {device} and {" and ".join(others)} both have that name',
            hint="two paths to one disk, or two disks with one serial number: neither is erased",
        )


def _check_shape(path: str, answer: dict[str, object], lab_bytes: int) -> None:
    size, sector = int(str(answer["size"])), int(str(answer["sector"]))
    partitions = answer["partitions"]
    if answer["read_only"]:
        raise RequestError(f"--device {path}: it is read-only")
    if isinstance(partitions, list) and partitions:
        raise RequestError(
            f"--device {path}: it has partitions ({', '.join(map(str, partitions))})", hint=_TAKE_OFF
        )
    if sector > BLOCK_BYTES:
        raise RequestError(f"--device {path}: blocks of {sector} bytes, expected at most {BLOCK_BYTES}")
    needed = lab_bytes + BLOCK_BYTES
    if size < needed:
        raise RequestError(
            f"--device {path}: the lab needs {needed:,} bytes, found {size:,}",
            hint="make the lab smaller ([lab] size), or name a larger disk",
        )


_TAKE_OFF = (
    "check that this is the right disk, and erase its signatures yourself (`wipefs`); if an earlier trial was "
    "cut off on it, run `iotrial restore`"
)


def _check_unused(target: Target, path: str, device: str) -> None:
    for _ in attempts(LOOKED_AT_WITHIN_S, every_s=0.05):
        users = target.call("device_users", device=device)["users"]
        if not users:
            return
    raise RequestError(f"--device {path} ({device}): in use: {', '.join(users)}")


def _check_signatures(target: Target, path: str, descriptor: str) -> None:
    try:
        done = target.run(["blkid", "-p", "-o", "export", descriptor])
    except TargetError as error:
        raise MissingTool.program("device lab", "blkid", "util-linux") from error
    if done.exit_status == BLKID_FOUND_NOTHING and not done.stdout.strip():
        return
    wanted = ("TYPE=", "PTTYPE=", "USAGE=", "LABEL=")
    words = [line for line in done.stdout.splitlines() if line.startswith(wanted)]
    found = ", ".join(words) or done.stderr.strip() or f"blkid ended with {done.exit_status}"
    raise RequestError(f"--device {path}: it is not empty: blkid found {found}", hint=_TAKE_OFF)


def _check_empty(target: Target, consent: Consent, path: str, device: str, lab_bytes: int) -> None:
    """Check both ends, random blocks of the whole disk, and every byte that the lab would overwrite."""
    found = None
    if not consent.discard_contents:
        look = target.call("device_check", device=device, samples=SAMPLES, edge_bytes=EDGE_BYTES)
        found = look["nonzero"]
    # an interrupted trial's writes were zeroed again: anything else was written since, without consent
    if found is None and (consent.resumed or not consent.discard_contents):
        found = target.call("device_scan", device=device, offset=0, length=lab_bytes + BLOCK_BYTES)["nonzero"]
    if found is not None:
        raise RequestError(
            f"--device {path}: it is not empty: there is data at byte {found:,}",
            hint=None if consent.resumed else "if its contents can be lost, add --discard-contents",
        )
