"""TLS keys of a fleet: one authority, and one certificate for each part.

The authority's own key signs three certificates and is then discarded, so nobody can issue another one; to
revoke access, make a new set. The certificates name parts, not machines: Dask verifies the signature and no
names. The client's certificate is not valid for a server, so somebody who holds only that cannot impersonate the
scheduler.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from iotrial.errors import IotrialError, MissingTool, RequestError
from iotrial.output_files import PRIVATE, file_in, held_folder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

VALID_DAYS = 730
INSTALL = "pip install 'iotrial[fleet]'"
STDIN = "-"
_LONGEST_LINE = 65_536


class Part(StrEnum):
    """A part of a fleet that holds a key."""

    SCHEDULER = "scheduler"
    WORKER = "worker"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one part, as PEM: the authority's certificate, its own certificate, and its private key."""

    authority: str
    certificate: str
    key: str

    @classmethod
    def of(cls, texts: Mapping[str, str], part: Part) -> Self:
        """Select the keys of one part from a set made by ``new_keys``."""
        return cls(texts["ca.pem"], texts[f"{part}.pem"], texts[f"{part}-key.pem"])

    @classmethod
    def in_folder(cls, folder: Path, part: Part) -> Self:
        """Read the keys of one part. Raises RequestError if a file is missing, or others can read the key."""
        return cls(*(path.read_text("utf-8", "replace") for path in key_files(folder, part)))

    @classmethod
    def from_line(cls, stream: IO[bytes]) -> Self:
        """Read what ``line`` wrote. Raises RequestError for anything else."""
        try:
            found = json.loads(stream.readline(_LONGEST_LINE))
            return cls(*(str(found[name]) for name in ("authority", "certificate", "key")))
        except (ValueError, KeyError, TypeError) as error:
            raise RequestError(
                "--keys -: expected keys as one line of JSON on standard input",
                hint="name a folder that `iotrial fleet keys` made; `run --hosts` uses --keys - by itself",
            ) from error

    def line(self) -> bytes:
        """Return the keys as one line for the standard input of a program started with ``--keys -``."""
        found = {"authority": self.authority, "certificate": self.certificate, "key": self.key}
        return json.dumps(found).encode() + b"\n"


def make_keys(folder: Path) -> tuple[Path, ...]:
    """Create ``ca.pem`` and, for each part, ``PART.pem`` and ``PART-key.pem`` in a folder; all or none, mode 0600.

    Raises RequestError if one of them exists, and MissingTool if the library that makes them is not
    installed.
    """
    names = ["ca.pem", *(f"{part}{end}" for part in Part for end in (".pem", "-key.pem"))]
    for name in names:
        if os.path.lexists(folder / name):
            raise RequestError(
                f"{folder / name} already exists, and keys are not overwritten",
                hint="name another folder; machines with the old keys cannot connect once the new ones are used",
            )
    texts = new_keys()
    written: list[str] = []
    try:
        with held_folder(folder, make=0o700) as held:
            try:
                for name in names:
                    with file_in(held, name, folder / name, mode=PRIVATE) as file:
                        file.write(texts[name].encode("ascii"))
                    written.append(name)
            except BaseException:
                for name in written:
                    os.unlink(name, dir_fd=held)
                raise
    except OSError as error:
        raise IotrialError(f"cannot write keys to {folder}: {error.strerror}") from error
    return tuple(folder / name for name in names)


def key_files(folder: Path, part: Part) -> tuple[Path, Path, Path]:
    """Return the paths of the authority's certificate, the part's own and its key.

    Raises RequestError if one is missing, or the key is accessible to others.
    """
    found = (folder / "ca.pem", folder / f"{part}.pem", folder / f"{part}-key.pem")
    for path in found:
        try:
            status = path.stat()
            path.open("rb").close()
        except OSError as error:
            raise RequestError(
                f"keys of the {part}: {path}: {error.strerror}",
                hint=f"`iotrial fleet keys FOLDER` creates them; a {part} needs {', '.join(one.name for one in found)}",
            ) from error
        if path == found[2] and stat.S_IMODE(status.st_mode) & 0o077:
            raise RequestError(f"{path}: others can read this key", hint=f"chmod 600 {path}")
    return found


def new_keys() -> dict[str, str]:
    """Make a new set: PEM by file name, as ``make_keys`` writes it. Raises MissingTool without the library."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError as error:
        raise MissingTool("creating keys needs the Python package cryptography", hint=INSTALL) from error

    began = datetime.now(UTC) - timedelta(days=1)  # tolerate clock differences between hosts

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"iotrial fleet {name}")])

    def certificate(
        name: str, key: EllipticCurvePrivateKey, *extensions: tuple[Any, bool]
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(began)
            .not_valid_after(began + timedelta(days=VALID_DAYS))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(authority, hashes.SHA256())

    authority = ec.generate_private_key(ec.SECP256R1())
    itself = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    signs = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    top = certificate(
        "authority",
        authority,
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (signs, True),
        (itself, False),
    )
    found = {"ca.pem": top.public_bytes(serialization.Encoding.PEM).decode()}
    for part in Part:
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if part is not Part.CLIENT:  # the others both connect and accept connections
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        own = certificate(
            part,
            key,
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.ExtendedKeyUsage(uses), True),
            (issuer, False),
        )
        found[f"{part}.pem"] = own.public_bytes(serialization.Encoding.PEM).decode()
        found[f"{part}-key.pem"] = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
    return found
