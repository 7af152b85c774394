"""Runs the program many times without starting an interpreter each time: everything is imported once, every run is a fork.

One JSON object a line in: ``{"argv", "environment", "folder", "die_at", "kinds"}``; out: ``{"pid"}`` as soon as it runs, then
``{"status"}`` as Popen has it, negative for a signal. Output and the steps passed go to files in the folder.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path

from steps import Steps

import iotrial.cli as cli
import iotrial.cli.verbs


def load() -> None:
    for module in pkgutil.iter_modules(iotrial.cli.verbs.__path__):
        importlib.import_module(f"iotrial.cli.verbs.{module.name}")
    for name in (
        "cli.ending",
        "cli.watching",
        "conduct.start",
        "conduct.resolve",
        "report.html",
        "report.text",
        "store",
    ):
        importlib.import_module(f"iotrial.{name}")
    from iotrial.study import catalogue

    catalogue.find("files/permissions")


def child(order: dict[str, object]) -> None:
    folder = Path(str(order["folder"]))
    os.setsid()
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        opened = os.open("/dev/null" if descriptor == 0 else folder / name, flags, 0o600)
        os.dup2(opened, descriptor)
    os.environ.clear()
    os.environ.update(order["environment"])  # type: ignore[arg-type]
    sys.argv = ["iotrial", *order["argv"]]  # type: ignore[misc]
    steps = Steps(order["die_at"], frozenset(order["kinds"]))  # type: ignore[arg-type]
    steps.install()
    status = 0
    try:
        cli.main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # as the interpreter itself would say it
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    (folder / "steps").write_text("\n".join(steps.names))
    os._exit(status)


def main() -> None:
    load()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        (Path(order["folder"]) / "steps").unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            child(order)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
