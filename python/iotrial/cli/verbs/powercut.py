"""``iotrial powercut``: does a service keep what it acknowledged, after a power cut?"""

from __future__ import annotations

import itertools
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from iotrial.cli.finish import EXIT_FAIL_IF, EXIT_NO_ANSWER, refuse_unwritable, write_report
from iotrial.cli.options import (
    AFTER,
    OwnCommand,
    force_option,
    in_group,
    json_option,
    sure,
    where,
)
from iotrial.cli.output import tell
from iotrial.cli.own_command import parameter_option
from iotrial.cli.power_cuts import (
    ALONE,
    Cutting,
    document_of,
    junit_of,
    repeated_lines,
    report_of,
    write_result,
)
from iotrial.cli.run_request import quantity_of, seed_of
from iotrial.design.keyed import new_seed
from iotrial.documents import json_text
from iotrial.errors import PrivilegeError, RequestError, UnknownName
from iotrial.knobs.filesystem import FilesystemType, MkfsOption, MountAtime, MountOption
from iotrial.lab.filesystem import FILESYSTEMS
from iotrial.lab.lock import MachineLock
from iotrial.lab.target import Target
from iotrial.ownership import invoking_user
from iotrial.powercut.campaign import KINDS, Campaign, Setup
from iotrial.powercut.counterexample import explained, repeated
from iotrial.powercut.results import results_folder
from iotrial.powercut.service import DIR, Service, command_of
from iotrial.powercut.states import DISKS
from iotrial.powercut.stores import STORES, commands_of
from iotrial.probe.client import Probe
from iotrial.report.text import Console, print_blocks
from iotrial.runner.quick_study import VARIABLE, parameter_of, setting_of
from iotrial.runner.signals import StopSignals
from iotrial.study.model import Setting
from iotrial.units import parse_duration, parse_size

_service = in_group("The service")
_MOUNT = (MountOption.name, MountAtime.name)
#: knobs that the file system of a service can have
_KNOBS = (FilesystemType.name, *_MOUNT, MkfsOption.name, VARIABLE)
_DEFAULT = "default"
_SMALLEST = 300 << 20


@click.command("powercut", cls=OwnCommand)
@click.argument("settings", nargs=-1, metavar="[KNOB=LEVEL,LEVEL]...")
@parameter_option
@_service(
    "--store",
    type=click.Choice(list(STORES)),
    help="A store that is installed here, with a client, a dump and what else it needs. COMMAND is then only options of its "
    "server, or pragmas of SQLite.",
)
@_service(
    "--client",
    metavar="LINE",
    help="Works with the service, and prints `acknowledged KEY VALUE` for each operation that the service "
    "has acknowledged. "
    "Without it, COMMAND is no service but does this itself.",
)
@_service("--dump", metavar="LINE", help="Prints KEY and VALUE of everything in the store; iotrial compares.")
@_service(
    "--check", metavar="LINE", help="Or: reads {acknowledged} and prints `lost ITEM` and `corrupt ITEM`."
)
@_service(
    "--ready", metavar="LINE", help="The service is ready once this succeeds (default: once {port} is open)."
)
@_service("--prepare", metavar="LINE", help="Fills {dir} before the service starts, such as initdb.")
@_service("--service", "restart", metavar="LINE", help="Started after a cut in place of COMMAND.")
@_service("--files", metavar="FOLDER", help="Begin with a copy of this folder in {dir}.")
@_service("--user", metavar="NAME", help="Run all of it as this user (default: who called iotrial).")
@where("--filesystem", default="ext4", metavar="TYPE", help="File system: ext4, xfs or btrfs (ext4).")
@where(
    "--size", default="512 MiB", metavar="SIZE", help="Size of the disk, which is held in memory (512 MiB)."
)
@where(
    "--disk",
    type=click.Choice(list(DISKS)),
    default="volatile",
    help="What a cut does to the disk: "
    + "; ".join(f"{name}: {text}" for name, (_, text) in DISKS.items())
    + ".",
)
@sure("--points", type=click.IntRange(1, 100_000), default=200, help="Cut points of each setting (200).")
@sure(
    "--runs",
    type=click.IntRange(1, 100),
    default=4,
    help="Runs of each setting that they are spread over (4).",
)
@sure("--run-time", default="15 s", metavar="DURATION", help="The client is ended after this time (15 s).")
@sure(
    "--time",
    default="3 min",
    metavar="DURATION",
    help="Time for everything (3 min); each setting gets a run.",
)
@sure("--seed", metavar="N", help="A number that the cut points are drawn from.")
@click.option(
    "--keep", metavar="FOLDER", help="Where to keep the least state that shows each loss (the state folder)."
)
@click.option("--replay", metavar="FOLDER", help="Recover a state that was kept once more, and check it.")
@click.option(
    "--fail-if",
    type=click.Choice(list(KINDS)),
    multiple=True,
    help="Exit with status 4 if a setting did this at a cut point.",
)
@click.option("--junit", metavar="FILE", help="Write the verdicts as JUnit XML.")
@force_option
@json_option
@click.pass_context
def command(ctx: click.Context, /, settings: tuple[str, ...], as_json: bool, **values: Any) -> int:
    """Does my service keep what it acknowledged, after a power cut?

    The service runs on a new file system, on a disk in memory that logs each write. Then the power is cut at drawn
    moments: the disk is rebuilt as it may have been left, recovered, the service started on it, and everything looked for
    that it had acknowledged. Nothing outside that disk can be changed by what is run.

      iotrial powercut --client './client.py {port}' --dump './dump.py {port}' -- ./server {dir} {port}

      iotrial powercut mount.option=barrier,nobarrier --dump './list {dir}' -- ./enqueue {dir}

      iotrial powercut --store redis -L sync always,everysec -- --appendonly yes --appendfsync {sync}
    """
    if os.geteuid() != 0:
        raise PrivilegeError("cutting the power of a service")
    refuse_unwritable(values["junit"], force=values["force"])
    if values["replay"]:
        return _replay(Path(values["replay"]).expanduser().absolute())
    words = ctx.meta.get(AFTER, ())
    service = _service_of(words, values)
    setups = list(_setups(service, settings, values["parameters"], values))
    time_s = quantity_of("--time", values["time"], parse_duration) or 0.0
    seed = seed_of(values["seed"]) or new_seed()
    number, folder = _kept_in(values["keep"])
    with MachineLock(), Probe(isolate=True) as probe, StopSignals() as signals:
        target = Target(probe)
        campaign = Campaign(
            target,
            setups,
            seed=seed,
            points=values["points"],
            runs=values["runs"],
            time_s=time_s,
            cache=DISKS[values["disk"]][0],
            say=lambda text: tell(text, err=True),
            explain=explained(target, folder),
            check=signals.check,
        )
        tallies = campaign.run()
    cutting = Cutting(
        tuple(tallies), values["disk"], number, shlex.join([*filter(None, [values["store"]]), *words])
    )
    write_result(cutting, folder)
    if as_json:
        click.echo(json_text(document_of(cutting)))
    else:
        print_blocks(report_of(cutting), Console(file=sys.stdout), full=True)
    if values["junit"]:
        write_report(junit_of(cutting), Path(values["junit"]), force=values["force"])
    if any(tally.count(kind) for tally in tallies for kind in values["fail_if"]):
        return EXIT_FAIL_IF
    return EXIT_NO_ANSWER if any(tally.problem or not tally.points for tally in tallies) else 0


def _service_of(words: Sequence[str], values: Mapping[str, Any]) -> Service:
    """Return what is run. Raises RequestError for what cannot be."""
    known = commands_of(values["store"], words) if values["store"] else {}
    if not words and not known:
        raise RequestError(
            "no service given: it comes after two dashes, or is one of --store",
            hint="iotrial powercut --client ./client --dump ./dump -- ./server {dir} {port}",
        )
    if not known and not values["dump"] and not values["check"]:
        raise RequestError(
            "nothing would tell what is lost: give --dump or --check",
            hint="--dump LINE prints KEY and VALUE of everything in the store; --check LINE prints what is lost",
        )
    lines = {
        name: command_of([values[name]]) if values[name] else known.get(name, ())
        for name in ("client", "dump", "check", "ready", "prepare")
    }
    client, server = lines.pop("client"), known["server"] if known else command_of(words)
    if not client:
        client, server = server, ()
    if not server and (values["restart"] or values["ready"]):
        raise RequestError("--service and --ready are for a service with a --client")
    service = Service(
        client=client,
        server=server,
        restart=command_of([values["restart"]]) if values["restart"] else (),
        copied=_folder(values["files"]),
        folder=str(Path.cwd()),
        user=_user(values["user"] or (STORES[values["store"]].user if values["store"] else None)),
        environment=tuple(sorted(os.environ.items())),
        run_s=quantity_of("--run-time", values["run_time"], parse_duration) or 0.0,
        **lines,
    )
    for name, command in service.commands.items():
        if shutil.which(command[0]) is None and not command[0].startswith("{"):
            raise RequestError(f"{name}: no program is called {command[0]}")
    texts = [word for command in service.commands.values() for word in command]
    if not any(DIR in word for word in texts):
        raise RequestError(
            "no command names {dir}, the folder on the disk that loses its power",
            hint="such as ./server --data {dir}; or read IOTRIAL_DIR, and give {dir} to --prepare",
        )
    return service


def _folder(name: str | None) -> str:
    if name and not Path(name).is_dir():
        raise RequestError(f"--files {name}: no such folder")
    return str(Path(name).resolve()) if name else ""


def _user(name: str | None) -> tuple[int, int]:
    if not name:
        return invoking_user()
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise RequestError(f"--user {name}: no such user") from None
    return found.pw_uid, found.pw_gid


def _setups(
    service: Service,
    settings: Sequence[str],
    parameters: Sequence[tuple[str, str]],
    values: Mapping[str, Any],
) -> Iterator[Setup]:
    """Yield every combination of the levels. Raises RequestError for one that the file system cannot have."""
    size = quantity_of("--size", values["size"], parse_size) or 0
    if size < _SMALLEST:
        raise RequestError(f"--size {values['size']}: expected at least {_SMALLEST >> 20} MiB")
    varied = [setting_of(text) for text in settings]
    for one in varied:
        if one.knob not in _KNOBS:
            raise RequestError(
                f"{one.name}: a power cut compares {', '.join(_KNOBS[:-1])} and env.NAME",
                hint="for other settings use a study with `check = true` (docs/durability.md)",
            )
    given = [parameter_of(name, levels) for name, levels in parameters]
    for combination in itertools.product(*(one.values for one in (*varied, *given))):
        pairs = list(zip((*varied, *given), combination, strict=True))
        name = " ".join(f"{one.name}={level}" for one, level in pairs) or ALONE
        knobs = [(one, level) for one, level in pairs if one in varied]
        changed = [(one, level) for one, level in knobs if level != _DEFAULT]
        kinds = [level for one, level in knobs if one.knob == FilesystemType.name]
        kind = kinds[0] if kinds else values["filesystem"]
        if kind not in FILESYSTEMS:
            raise UnknownName("file system", kind, list(FILESYSTEMS))
        environment = [(one.name, level) for one, level in knobs if one.knob == VARIABLE]
        filled = service.filled({f"{{{one.name}}}": level for one, level in pairs if one in given})
        yield Setup(
            name=name,
            service=replace(filled, environment=(*service.environment, *environment)),
            filesystem=kind,
            size_bytes=size,
            levels=tuple(
                Setting(one.knob, level, () if one.option is None else (one.option,)) for one, level in pairs
            ),
            mkfs_options=tuple(_mkfs(kind, level) for one, level in changed if one.knob == MkfsOption.name),
            options=",".join(_mount(kind, one.knob, level) for one, level in changed if one.knob in _MOUNT),
        )


def _mkfs(kind: str, option: str) -> str:
    if not FILESYSTEMS[kind].allows_mkfs(option):
        raise RequestError(f"mkfs.option={option}: not an option of mkfs.{kind} that iotrial knows")
    return option


def _mount(kind: str, knob: str, option: str) -> str:
    known = (
        MountAtime.LEVELS
        if knob == MountAtime.name
        else [name for name, kinds in MountOption.ALLOWED.items() if kind in kinds]
    )
    if option.partition("=")[0] not in known:
        raise UnknownName(f"mount option of {kind}", option, list(known))
    return option


def _kept_in(named: str | None) -> tuple[int, Path]:
    """Return the number of this campaign, and a new folder for what it keeps."""
    base = Path(named).expanduser().absolute() if named else results_folder()
    base.mkdir(parents=True, exist_ok=True)
    taken = [int(one.name) for one in base.iterdir() if one.name.isdigit()]
    number = max(taken, default=0) + 1
    (base / str(number)).mkdir(mode=0o700)
    return number, base / str(number)


def _replay(folder: Path) -> int:
    with MachineLock(), Probe(isolate=True) as probe:
        kept, outcome = repeated(Target(probe), folder, tuple(sorted(os.environ.items())))
    for line in repeated_lines(kept, outcome):
        tell(line)
    return 0 if KINDS[kept.kind](outcome) else 1
