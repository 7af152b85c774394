"""A trial run from Python: by the program itself, in a process of its own.

Conducting turns settings, holds the machine's lock, keeps an undo journal and owns the signals, which no library may
do in somebody else's process. So ``run`` starts ``iotrial run`` as a user would and waits for it; what interrupts the
caller is passed on as an interrupt, and the program then puts everything back before it ends.
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

# They give another document than a report, or none; that it is asked for by JSON is for ``run`` to say.
_REFUSED = ("--json", "--rehearse", "--help", "-h")
_INVALID, _FAIL_IF = 3, 4


def run(
    study: str | os.PathLike[str] | Study,
    *options: str,
    store: str | os.PathLike[str] | None = None,
) -> Trial:
    """Puts a study on trial on this machine, as ``iotrial run STUDY OPTIONS...`` does, and gives the trial once it
    has ended.

    ``study`` is a name of the catalogue, a TOML file or a ``Study``; ``options`` are the words of the command line,
    each as one string: ``run("files/permissions", "--lab", "directory", "--time", "30s")``. ``store`` names another
    file than the user's own for the trial. It takes as long as the study's budget (five minutes unless it or
    ``--time`` says otherwise). Nothing is printed; an interrupt (Ctrl-C) ends the trial, waits until everything is
    put back, and goes on as KeyboardInterrupt: what was measured is stored then.

    RequestError where the request was wrong (nothing was changed), RestoreError where something could not be put back,
    IotrialError where the work failed. An invalid trial is no error: see ``Trial.valid``.
    """
    for option in options:
        if option in _REFUSED:
            raise RequestError(f"run: {option} gives no trial", hint="leave it out, or use the command line")
    with tempfile.TemporaryDirectory(prefix="iotrial-study-") as folder:
        name, *trust = _named(study, Path(folder))
        status, out, err = _program(["run", name, *options, *trust, "--json"], store)
    if status in (0, _INVALID, _FAIL_IF) or (status > 128 and out):
        return trial(_id_in(out, err, status), store)
    raise _error(status, err)


def _named(study: str | os.PathLike[str] | Study, folder: Path) -> list[str]:
    """The words for the command line; a study that was read from a text or a file is written to a file for the time."""
    if not isinstance(study, Study):
        name = os.fspath(study)
        if name.startswith("-"):
            raise RequestError(f'run: wanted a study, found the option "{name}"')
        return [name]
    if study.of_trial:
        raise RequestError(
            "run: this study is that of a trial, whose levels were chosen and whose commands others may have written",
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
    """Exit status, standard output and standard error. -P: no module of the current folder takes the place of one of
    ours."""
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
        start_new_session=True,  # an interrupt reaches it once, through here
    )
    try:
        out, err = child.communicate()
    except BaseException:
        with suppress(ProcessLookupError):
            child.send_signal(signal.SIGINT)
        child.communicate()  # it is putting things back
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
    """What the program said on standard error, as the error that it was."""
    kind = {2: RequestError, 5: RestoreError}.get(status, IotrialError)
    for line in reversed(err.splitlines()):
        try:
            said = json.loads(line)["error"]
            made = kind(str(said["message"]), hint=said["hint"])
            made.code = str(said["code"])
        except (ValueError, KeyError, TypeError):
            continue
        return made
    return kind(f"run: the program ended with status {status}: {err.strip()[-400:]}")
