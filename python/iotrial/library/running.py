"""Run a trial from Python: by the program itself, in a separate process.

Running a trial changes settings, holds the machine's lock, keeps an undo journal and handles signals, which a
library must not do in its caller's process. So ``run`` starts ``iotrial run`` as a user would and waits for
it. An interrupt of the caller is forwarded, and the program then restores everything before it exits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from iotrial.errors import IotrialError, RequestError, RestoreError
from iotrial.library.opening import trial
from iotrial.library.study import Study
from iotrial.library.trial import Trial
from iotrial.paths import store_path
from iotrial.study.catalogue import is_shipped
from iotrial.study.trust import unmet

# Rejected because they print something other than a report, or nothing; ``run`` itself adds --json.
_REFUSED = ("--json", "--rehearse", "--help", "-h")
_INVALID, _FAIL_IF, _NO_ANSWER = 3, 4, 6


def run(
    study: str | os.PathLike[str] | Study,
    *options: str,
    store: str | os.PathLike[str] | None = None,
) -> Trial:
    """Run a study on this machine, as ``iotrial run STUDY OPTIONS...`` does, and return the trial once it has ended.

    ``study`` is a name of the catalogue, a TOML file or a ``Study``; ``options`` are command-line options,
    each as one string: ``run("files/permissions", "--lab", "directory", "--time", "30s")``. ``store`` is a
    file other than the user's own store. Takes as long as the study's budget (five minutes unless it or
    ``--time`` says otherwise). Prints nothing. An interrupt (Ctrl-C) ends the trial, waits until everything
    is restored, and re-raises KeyboardInterrupt; what was measured by then is stored.

    Raises RequestError for a wrong request (nothing was changed), RestoreError if something could not be
    restored, and IotrialError if the trial failed. An invalid trial is not an error: see ``Trial.valid``.
    """
    for option in options:
        if option in _REFUSED:
            raise RequestError(
                f"run: {option} does not produce a trial", hint="leave it out, or use the command line"
            )
    with tempfile.TemporaryDirectory(prefix="iotrial-study-") as folder:
        name, *trust = _named(study, Path(folder))
        status, out, err = _program(["run", name, *options, *trust, "--json"], store)
    if status in (0, _INVALID, _FAIL_IF, _NO_ANSWER) or (status > 128 and out):
        return trial(_id_in(out, err, status), store)
    raise _error(status, err)


def try_(
    settings: str | Sequence[str],
    command: str | Sequence[str],
    *options: str,
    store: str | os.PathLike[str] | None = None,
) -> Trial:
    """Try settings with a command, as ``iotrial try SETTINGS OPTIONS -- COMMAND`` does, and return the ended trial.

    ``settings``: one or several as on the command line, ``"block.read_ahead_kb=128,1024"``; none if only words of the command
    vary (``"-L", "level", "1,9"``). ``command``: a list of words, or a line for the shell. ``options``: each as one string;
    ``"--yes"`` allows the changes, which nobody is asked about here:
    ``try_("block.read_ahead_kb=128,1024", "cat *.log", "--in", "/srv", "--cache", "cold", "--yes")``. Behaves as ``run`` in
    everything else, and raises the same errors.
    """
    for option in options:
        if option in _REFUSED or option == "--":
            raise RequestError(
                f"try_: {option} does not produce a trial", hint="leave it out, or use the command line"
            )
    named = [settings] if isinstance(settings, str) else list(settings)
    words = [command] if isinstance(command, str) else list(command)
    if not words:
        raise RequestError(
            "try_: the command is empty", hint='such as ["cat", "data.bin"], or a line for the shell'
        )
    status, out, err = _program(["try", *filter(None, named), *options, "--json", "--", *words], store)
    if status in (0, _INVALID, _FAIL_IF, _NO_ANSWER) or (status > 128 and out):
        return trial(_id_in(out, err, status), store)
    raise _error(status, err)


def _named(study: str | os.PathLike[str] | Study, folder: Path) -> list[str]:
    """Return the command-line arguments; a study read from text or a file is written to a temporary file."""
    if not isinstance(study, Study):
        name = os.fspath(study)
        if name.startswith("-"):
            raise RequestError(f'run: expected a study, found the option "{name}"')
        return [name]
    if study.of_trial:
        raise RequestError(
            "run: this study is that of a trial, with chosen levels, and commands that others may have written",
            hint="on the command line: iotrial run --like FILE.iotrial, which shows them and asks",
        )
    declaration = study.declaration
    if is_shipped(declaration):
        return [declaration.origin]
    wanted = unmet(declaration) if study.of_text else ()
    if wanted:
        raise RequestError(
            f"run: study {study.name} is not trusted, and {wanted[0]}",
            hint="if you trust this text: read_study(TOML, trusted=True)",
        )
    file = folder / "study.toml"
    file.write_text(study.text, encoding="utf-8")
    return [str(file), "--trust" if declaration.trusted or study.of_text else "--foreign"]


def _program(words: Sequence[str], store: str | os.PathLike[str] | None) -> tuple[int, str, str]:
    """Run iotrial; return exit status, standard output and standard error.

    -P keeps modules in the current folder from replacing ours.
    """
    environment = {
        **os.environ,
        "IOTRIAL_STORE": str(store_path() if store is None else Path(store).expanduser()),
    }
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "iotrial", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # an interrupt reaches it only once, forwarded from here
    )
    try:
        out, err = child.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        child.communicate()  # wait while it restores everything
        raise
    return child.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _id_in(out: str, err: str, status: int) -> str:
    try:
        return str(json.loads(out)["trial"]["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise IotrialError(
            f"run: the program ended with status {status} and without a report: {err.strip()[-400:]}"
        ) from error


def _error(status: int, err: str) -> IotrialError:
    """Rebuild the error that the program reported on standard error."""
    kind = {2: RequestError, 5: RestoreError}.get(status, IotrialError)
    for line in reversed(err.splitlines()):
        try:
            error = json.loads(line)["error"]
            made = kind(str(error["message"]), hint=error["hint"])
            made.code = str(error["code"])
        except (ValueError, KeyError, TypeError):
            continue
        return made
    return kind(f"run: the program ended with status {status}: {err.strip()[-400:]}")
