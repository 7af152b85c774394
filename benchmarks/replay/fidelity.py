"""Does a replay rank settings as its application does? Settings by applications, one short trial for each pair.

    python benchmarks/replay/fidelity.py RECORD.jsonl                # all pairs, as root, alone on the machine
    python benchmarks/replay/fidelity.py RECORD.jsonl --quick        # one pair, ten seconds: whether it works
    python benchmarks/replay/fidelity.py RECORD.jsonl --table        # only print the table of what is recorded
    python benchmarks/replay/fidelity.py RECORD.jsonl --write BENCHMARKS.md

Each application is recorded once (`iotrial record`), in a folder on this machine's disk. Each pair is then one trial in an
image lab with two workloads: the application itself, on a fresh copy of its folder, and the replay of the trace. A pair
is one line of the record; what is recorded is not measured again, so that the benchmark can be stopped and continued.
`--open` measures the pairs again that are open, for example with more `--seconds`; the last line of a pair counts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "truth"))
from applications import APPLICATIONS, Application

from marked import put

MARGIN = "10 %"
LAB_SIZE = "1 GiB"
IOTRIAL = (sys.executable, "-m", "iotrial")


@dataclass(frozen=True, slots=True)
class Compared:
    """Two levels of a setting. ``factor``, ``lab`` and ``places`` are parts of the study file. ``cold``: nothing is cached
    when a run begins."""

    name: str
    factor: str
    cold: bool = False
    lab: str = ""
    places: str = ""


def _factor(knob: str, levels: Sequence[object], more: str = "") -> str:
    return f'[[factor]]\nname = "setting"\nknob = "{knob}"\n{more}levels = {json.dumps(list(levels))}\n'


def _option(option: str, *levels: str) -> str:
    return _factor("mount.option", levels, f'option = "{option}"\n')


def _model(model: str) -> str:
    return f'disk = "{model}"\n'


SETTINGS = (
    Compared("read-ahead 128 / 16 KiB", _factor("block.read_ahead_kb", ["128", "16"]), cold=True),
    Compared("read-ahead 128 / 1024 KiB", _factor("block.read_ahead_kb", ["128", "1024"]), cold=True),
    Compared(
        "scheduler none / mq-deadline, hard disk",
        _factor("block.scheduler", ["none", "mq-deadline"]),
        cold=True,
        lab=_model("disk-7200"),
    ),
    Compared("strictatime / noatime", _factor("mount.atime", ["strictatime", "noatime"])),
    Compared("data=ordered / journal", _option("data", "data=ordered", "data=journal")),
    Compared("barrier / nobarrier", _option("barrier", "barrier", "nobarrier")),
    Compared("commit=5 / 1", _option("commit", "commit=5", "commit=1")),
    Compared("ext4 / xfs", _factor("filesystem.type", ["ext4", "xfs"])),
    Compared("ext4 / btrfs", _factor("filesystem.type", ["ext4", "btrfs"])),
    Compared(
        "dirty_background_bytes 512 / 1 MiB",
        '[[factor]]\nname = "setting"\nknob = "sysctl"\nkey = "vm.dirty_background_bytes"\n'
        'levels = [{ label = "512 MiB", value = 536870912 }, { label = "1 MiB", value = 1048576 }]\n',
    ),
    Compared(
        "hard disk / SSD (modelled)",
        _factor("lab.device", ["turning", "flash"]),
        cold=True,
        places='[[place]]\nname = "turning"\ndisk = "disk-7200"\n\n[[place]]\nname = "flash"\ndisk = "ssd-sata"\n',
    ),
)


def main() -> None:
    """Measure what is not recorded yet, in random order, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("record", type=Path, help="JSON lines, one for each pair; made if it is missing")
    parser.add_argument("--quick", action="store_true", help="one pair only, ten seconds")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--seconds", type=float, default=40.0, help="of measuring, for each pair")
    parser.add_argument("--only", metavar="WORD", default="", help="pairs whose names contain this")
    parser.add_argument("--open", action="store_true", help="measure again what is open")
    parser.add_argument("--on", type=Path, default=Path("/var/tmp"), help="folder on the disk to use")
    parser.add_argument("--write", type=Path, help="file with the marks <!-- fidelity --> and <!-- end -->")
    given = parser.parse_args()
    if not given.table:
        measure(given)
    text = table(read(given.record))
    print(text)
    if given.write:
        put(given.write, "fidelity", text)


def measure(given: argparse.Namespace) -> None:
    """Measure all missing pairs."""
    done = {
        (line["setting"], line["application"])
        for line in read(given.record)
        if not (given.open and line.get("standing") == "open")
    }
    chosen = [one for one in APPLICATIONS if one.available]
    for one in APPLICATIONS:
        if one not in chosen:
            print(f"{one.name}: left out, {' or '.join(one.needs)} is not installed", file=sys.stderr)
    pairs = [
        (setting, application)
        for setting in SETTINGS
        for application in chosen
        if (setting.name, application.name) not in done and given.only in f"{setting.name} {application.name}"
    ]
    random.shuffle(pairs)
    seconds = given.seconds
    if given.quick:
        pairs, seconds = [(SETTINGS[4], chosen[0])], 10.0
    with tempfile.TemporaryDirectory(dir=given.on, prefix="fidelity-") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state-home")
        traces: dict[str, Path] = {}
        for number, (setting, application) in enumerate(pairs, start=1):
            if application.name not in traces:
                traces[application.name] = recorded(application, folder)
            began = time.monotonic()
            line = measured(setting, application, traces[application.name], folder, given.on, seconds)
            line["seconds"] = round(time.monotonic() - began, 1)
            with given.record.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(
                f"{number} of {len(pairs)}: {setting.name}, {application.name}: {line.get('standing', line.get('error'))}",
                file=sys.stderr,
                flush=True,
            )


def recorded(application: Application, folder: Path) -> Path:
    """Prepare the application's folder, record it on a copy, and return the trace.

    The copy is on a file system of its own, as in the trial: on the one of its source, a program that reads files as they
    are listed would find them in this order on the disk too, since both are listed alike.
    """
    home = folder / application.name
    state, mounted, image, trace = (home / name for name in ("state", "mounted", "image", "app.iotrace"))
    state.mkdir(parents=True)
    mounted.mkdir()
    application.prepare(state)
    subprocess.run(
        ["mkfs.ext4", "-q", image, LAB_SIZE.removesuffix("iB").replace(" ", "")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run(["mount", "-o", "loop", image, mounted], check=True)
    try:
        copy = mounted / "copy"
        subprocess.run(["cp", "-a", state, copy], check=True)
        os.sync()
        subprocess.run(
            [*IOTRIAL, "record", "--under", str(copy), "-o", str(trace), "--", *application.argv],
            check=True, cwd=copy, stdout=subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        subprocess.run(["umount", mounted], check=True)
    image.unlink()
    return trace


def study(setting: Compared, application: Application, trace: Path, seconds: float) -> str:
    """Return the study of a pair.

    The application works in {out}, into which its folder is copied before each run; the replay's files stay from run to run.
    Unless cold, both find in the page cache what making the files and the mount have left there.
    """
    argv, cache = json.dumps(list(application.argv)), "cold" if setting.cold else "as-is"
    state = trace.parent / "state"
    return f"""[study]
name = "fidelity"
question = "Does the replay of {application.name} rank {setting.name} as {application.name} does?"
margin = "{MARGIN}"
account = false

[lab]
kind = "image"
filesystem = "ext4"
size = "{LAB_SIZE}"
{setting.lab}
[budget]
time = "{seconds:g} s"

{setting.places}
{setting.factor}
[[workload]]
name = "application"
kind = "command"
files = 1
cache = "{cache}"
reads = "names"
run_as = "root"
cwd = "{{out}}"
prepare = ["cp", "-a", "{state}/.", "{{out}}"]
argv = {argv}

[[workload]]
name = "replay"
kind = "replay"
trace = "{trace.name}"
stands_for = "application"
cache = "{cache}"
"""


def measured(
    setting: Compared, application: Application, trace: Path, folder: Path, on: Path, seconds: float
) -> dict[str, Any]:
    """Run the trial of a pair and return its line of the record."""
    line: dict[str, Any] = {
        "setting": setting.name,
        "application": application.name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
    }
    shown = json.loads(_output("show", str(trace), "--json"))["trace"]
    line["trace"] = {key: shown[key] for key in ("operations", "lost", "elsewhere", "duration_ns")}
    file = trace.parent / "fidelity.toml"
    file.write_text(study(setting, application, trace, seconds))
    done = subprocess.run(
        [*IOTRIAL, "run", str(file), "--trust", "--on", str(on), "--json"],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        return line | {"error": _error(done.stderr) or f"exit status {done.returncode}"}
    stand_ins = report.get("stand_ins", [])
    if not stand_ins:
        return line | {"error": report["trial"]["verdict"]}
    (found,) = stand_ins
    return line | {
        "state": report["trial"]["state"],
        "standing": found["standing"],
        "comparisons": found["comparisons"],
        "amounts": found["amounts"],
    }


def _error(text: str) -> str:
    """Return the message of the document on the last line of standard error, or the line."""
    last = text.strip().rpartition("\n")[2]
    try:
        return str(json.loads(last)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return last[-600:]


def _output(*words: str) -> str:
    return subprocess.run([*IOTRIAL, *words], check=True, capture_output=True, text=True).stdout


def read(record: Path) -> list[dict[str, Any]]:
    """Return the last line of each pair of the record."""
    if not record.exists():
        return []
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    return list({(line["setting"], line["application"]): line for line in lines}.values())


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of agreement: ratios of the application and of its replay, and whether the verdicts agree."""
    names = [one.name for one in APPLICATIONS if any(line["application"] == one.name for line in lines)]
    rows = [f"| setting | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    found = {(line["setting"], line["application"]): line for line in lines}
    for setting in (one.name for one in SETTINGS if any(line["setting"] == one.name for line in lines)):
        cells = (_cell(found.get((setting, name))) for name in names)
        rows.append(f"| {setting} | {' | '.join(cells)} |")
    compared = [one for line in lines for one in line.get("comparisons", ())]
    counts = Counter(one["agreement"] for one in compared)
    effects = sum(
        one["agreement"] == "same" and "equivalent" not in one["application"]["conclusion"]
        for one in compared
    )
    failed = sum("error" in line for line in lines)
    failures = f"; {failed} pairs failed" if failed else ""
    note = (
        f"{len(compared)} comparisons: the same verdict in {counts['same']} ({effects} with an effect), "
        f"another in {counts['different']}, open in {counts['open']}{failures}. "
        f"Ratio of the second level to the first, application / replay.{_apart(compared)}"
    )
    return "\n".join([*rows, "", note])


def _apart(compared: Sequence[Mapping[str, Any]]) -> str:
    """Return by how much the two ratios of a comparison differ, as a sentence."""
    found = [
        abs(math.log(one["stand_in"]["value"] / one["application"]["value"]))
        for one in compared
        if one["stand_in"]["value"] and one["application"]["value"]
    ]
    if not found:
        return ""
    middle, largest = (math.exp(value) for value in (statistics.median(found), max(found)))
    return f" The two ratios differ by a factor of {middle:.2f} in the median, {largest:.2f} at most (n = {len(found)})."


def _cell(line: Mapping[str, Any] | None) -> str:
    if line is None:
        return "–"
    if "error" in line:
        return "failed"
    return "; ".join(
        f"{_ratio(one['application'])} / {_ratio(one['stand_in'])} {one['agreement']}"
        for one in line["comparisons"]
    )


def _ratio(side: Mapping[str, Any]) -> str:
    return "?" if side["value"] is None else f"{side['value']:.2f}"


if __name__ == "__main__":
    main()
