"""Parse the location of each place from the command line.

``--place NAME=FOLDER`` names a folder. ``--place NAME=PATH`` with ``--erase NAME=SERIAL`` names a disk twice,
as consent to overwrite it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from iotrial.cli.options import named_value
from iotrial.errors import RequestError
from iotrial.lab.guard import Consent, consent
from iotrial.runner.places import Where


def named(
    places: Sequence[str],
    device: str | None,
    erase: Sequence[str],
    *,
    discard_contents: bool,
    discard_contents_of: Sequence[str],
) -> tuple[Consent | None, Mapping[str, Where]]:
    """Return the disk of a device lab (None if none is named) and the location of each place.

    Raises RequestError if a place is named twice, does not exist, or is a disk without consent, and for
    consent that matches no place.
    """
    paths = _pairs("--place", places)
    disks = {name: path for name, path in paths.items() if Path(path).expanduser().is_block_device()}
    words = _of_places(erase, disks)
    rest = [text for text in erase if text.partition("=")[0] not in words]
    waived = set(discard_contents_of)
    _check_consent(paths, disks, words, rest, device, discard_contents=discard_contents, waived=waived)
    located = {}
    for name, path in paths.items():
        if name not in disks:
            located[name] = Where(folder=_folder(name, path))
            continue
        if name not in words:
            raise RequestError(
                f"--place {name}={path} is a disk, and --erase {name}=SERIAL-OR-WWN is missing",
                hint="its serial number or WWN (`lsblk -o NAME,SERIAL,WWN,SIZE,MOUNTPOINTS`) confirms that it "
                "may be overwritten",
            )
        located[name] = Where(consent=Consent(path, words[name], name in waived))
    return consent(device, rest[0] if rest else None, discard_contents=discard_contents), located


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, path = named_value(option, text, "FOLDER", "ssd=/mnt/ssd")
        if name in found:
            raise RequestError(f"{option} {name} is given twice")
        found[name] = path
    return found


def _of_places(erase: Sequence[str], disks: Mapping[str, str]) -> dict[str, str]:
    """Return the serial numbers by place."""
    found: dict[str, str] = {}
    for text in erase:
        name, equals, serial = text.partition("=")
        if not equals or name not in disks:
            continue
        if name in found:
            raise RequestError(f"--erase {name} is given twice")
        if not serial.strip():
            raise RequestError(
                f'--erase "{text}": the serial number or WWN is missing',
                hint="`lsblk -o NAME,SERIAL,WWN` shows them",
            )
        found[name] = serial.strip()
    return found


def _check_consent(
    paths: Mapping[str, str],
    disks: Mapping[str, str],
    words: Mapping[str, str],
    rest: Sequence[str],
    device: str | None,
    *,
    discard_contents: bool,
    waived: set[str],
) -> None:
    """Raise RequestError for consent that does not match a named disk: that is likely a mistake of the user."""
    for text in rest:
        name = text.partition("=")[0]
        if name in paths:
            raise RequestError(
                f"--erase {name}: --place {name}={paths[name]} is not a disk",
                hint="nothing is erased in a folder: omit --erase, or name the disk itself",
            )
    if len(rest) > 1 or (rest and disks and device is None):
        raise RequestError(
            f'--erase "{rest[-1]}" does not belong to any disk that was named',
            hint="say --erase NAME=SERIAL-OR-WWN",
        )
    for name in sorted(waived - set(words)):
        raise RequestError(
            f"--discard-contents-of {name}: no disk is named by --place {name}=PATH",
        )
    if discard_contents and disks and device is None:
        raise RequestError(
            "--discard-contents: which disk?", hint="use --discard-contents-of PLACE for each disk"
        )


def _folder(name: str, path: str) -> str:
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise RequestError(f"--place {name}={path}: there is no such folder")
    return str(folder)
