"""Completion candidates: studies, trials, factors and their levels, and files of the types that a verb takes.

The shell waits for the answer, so nothing here imports the code that reads studies or stores. Names of
shipped studies are file names, a study's factors are read from its TOML, and trials are two columns of the
store, opened read-only. Anything that cannot be read gives no candidates: completion never fails and never
prints a message.

Candidates are chosen by parameter name, not per verb: a name means the same everywhere.
"""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from iotrial.cli.options import AFTER
from iotrial.paths import store_path
from iotrial.study.disks import MODELS
from iotrial.study.places import LABS

MOST_TRIALS = 50
MOST_FILES = 500
PACKED, TOML, TRACE = ".iotrial", ".toml", ".iotrace"

Item = CompletionItem[str]
Offer = Callable[[click.Context, str], Iterable[Item]]


def attach(command: click.Command) -> None:
    """Set the completion of each parameter of this verb; a parameter with choices keeps its own."""
    for param in command.params:
        offer = _OFFERS.get(f"{command.name} {param.name}") or _OFFERS.get(param.name or "")
        if offer is not None and not isinstance(param.type, click.Choice):
            setattr(param, "shell_complete", partial(_offered, offer))  # noqa: B010 (a method, for this one)


def _offered(offer: Offer, ctx: click.Context, incomplete: str) -> list[Item]:
    found: list[Item] = []
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, sqlite3.Error, RecursionError):
        found.extend(item for item in offer(ctx, incomplete) if item.value.isprintable())
    return found


# -- studies


def studies(_: click.Context, incomplete: str) -> Iterator[Item]:
    """Yield the names of shipped studies, and study files."""
    root = _package() / "catalogue"
    names = (f"{file.parent.name}/{file.stem}" for file in root.glob(f"*/*{TOML}"))
    yield from _starting(sorted(names), incomplete)
    yield from files_of(TOML, incomplete, folders=bool(incomplete))


def workload_kinds(_: click.Context, incomplete: str) -> Iterator[Item]:
    """Yield the workload kinds: each is a module of that name, among other modules."""
    modules = (
        file.stem for file in (_package() / "workloads").glob("*.py") if "\nWORK = " in file.read_text()
    )
    found = sorted(name for name in modules if name not in ("__init__", "contract", "reference", "varied"))
    yield from _starting(found, incomplete)


def levels(ctx: click.Context, incomplete: str, *, role: str) -> Iterator[Item]:
    """Yield FACTOR=LEVEL,LEVEL for the factors in this role, of the study on the command line."""
    # click has not yet named the arguments before an option without its value
    factors = _factors(ctx.params.get("study") or next(iter(ctx.args), None), role)

    def levels_of(factor: str) -> Iterable[str]:
        # spaces in labels are ignored
        return (label.replace(" ", "") for label in (*factors.get(factor, ()), "all"))

    yield from _named_levels(incomplete, factors, levels_of, "factor")


def settings(ctx: click.Context, incomplete: str) -> Iterator[Item]:
    """Yield KNOB=LEVEL,LEVEL, with the levels that are the same on every machine; after ``--`` files."""
    from iotrial.runner.quick_study import known_settings, levels_of

    if AFTER in ctx.meta:
        yield Item(incomplete, type="file")
        return
    yield from _named_levels(incomplete, sorted(known_settings()), levels_of, "knob")


def _to_choose_from(ctx: click.Context, incomplete: str) -> Iterator[Item]:
    """Yield what ``best`` chooses from: settings, or the name of a study."""
    yield from settings(ctx, incomplete)
    if AFTER not in ctx.meta:
        yield from studies(ctx, incomplete)


def _named_levels(
    incomplete: str, names: Iterable[str], levels_of: Callable[[str], Iterable[str]], what: str
) -> Iterator[Item]:
    """Yield NAME= for names that match what is typed, then NAME=LEVEL,LEVEL with one more level."""
    name, equals, rest = incomplete.partition("=")
    if not equals:
        yield from (Item(f"{one}=", help=what) for one in names if one.startswith(name))
        return
    before, comma, begun = rest.rpartition(",")
    chosen = set(before.split(","))
    for level in levels_of(name):
        if level.casefold().startswith(begun.casefold()) and level not in chosen:
            yield Item(f"{name}={before}{comma}{level}")


def _factors(study: object, role: str) -> dict[str, list[str]]:
    if not isinstance(study, str):
        return {}
    shipped = _package() / "catalogue" / f"{study}{TOML}"
    path = shipped if study.count("/") == 1 and shipped.is_file() else Path(study).expanduser()
    with path.open("rb") as file:
        body = tomllib.load(file)
    found = {
        str(factor["name"]): [str(one["label"] if isinstance(one, dict) else one) for one in factor["levels"]]
        for factor in body.get("factor", ())
        if factor.get("role", "treatment") == role
    }
    if role == "condition":
        found["workload"] = [str(one["name"]) for one in body.get("workload", ())]
    return found


# -- trials and files


def trials(_: click.Context, incomplete: str) -> Iterator[Item]:
    """Yield the numbers of stored trials, newest first, and packed trials."""
    if "last".startswith(incomplete):
        yield Item("last", help="the newest trial")
    if incomplete.isdigit() or not incomplete:
        yield from (item for item in _stored() if item.value.startswith(incomplete))
    yield from files_of(PACKED, incomplete, folders=bool(incomplete))


def _stored() -> Iterator[Item]:
    path = store_path()
    if not path.is_file():
        return
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=0.1)) as connection:
        connection.execute("PRAGMA trusted_schema = OFF")
        yield from (
            Item(str(number), help=f"{name} {str(started)[:16].replace('T', ' ')}")
            for number, name, started in connection.execute(
                "SELECT number, json_extract(study, '$.study.name'), started FROM trial ORDER BY number DESC LIMIT ?",
                (MOST_TRIALS,),
            )
        )


def files_of(suffix: str, incomplete: str, *, folders: bool = True) -> Iterator[Item]:
    """Yield files with this suffix, and with ``folders`` also folders, that match what is typed."""
    folder, slash, begun = incomplete.rpartition("/")
    here = Path(folder + slash).expanduser() if slash else Path()
    for path in sorted(here.iterdir())[:MOST_FILES]:
        if path.name.startswith(begun) and (begun or not path.name.startswith(".")):
            if path.is_dir():
                if not folders:
                    continue
                yield Item(f"{folder}{slash}{path.name}/", type="path")
            elif path.name.endswith(suffix):
                yield Item(f"{folder}{slash}{path.name}", type="path")


def _of_suffix(suffix: str) -> Offer:
    return lambda _, incomplete: files_of(suffix, incomplete)


def _words(*words: str) -> Offer:
    return lambda _, incomplete: _starting(words, incomplete)


def _by_the_shell(kind: str) -> Offer:
    return lambda _, incomplete: [Item(incomplete, type=kind)]


def _disks(_: click.Context, incomplete: str) -> Iterator[Item]:
    return _starting([*MODELS, "none"], incomplete)


def _starting(words: Iterable[str], incomplete: str) -> Iterator[Item]:
    return (Item(word) for word in words if word.startswith(incomplete))


def _package() -> Path:
    return Path(__file__).parents[1]


_OFFERS: dict[str, Offer] = {
    "study": studies,
    "workload": workload_kinds,
    "sets": partial(levels, role="treatment"),
    "settings": settings,
    "best settings": _to_choose_from,
    "conditions": partial(levels, role="condition"),
    "trial": trials,
    "trials": trials,
    "like": _of_suffix(PACKED),
    "replay": _of_suffix(TRACE),
    "file": _by_the_shell("file"),
    "files": _by_the_shell("file"),
    "import file": _of_suffix(PACKED),
    "html": _by_the_shell("file"),
    "markdown": _by_the_shell("file"),
    "out": _by_the_shell("file"),
    "device": _by_the_shell("file"),
    "on": _by_the_shell("dir"),
    "copy_from": _by_the_shell("dir"),
    "save": _by_the_shell("file"),
    "json_file": _by_the_shell("file"),
    "figures": _by_the_shell("dir"),
    "to": _by_the_shell("file"),
    "lab": _words(*LABS),
    "disk": _disks,
    "form": _words("csv", "hyperfine", "fio", "iozone", "bonnie", "strace"),
}
