"""Fork server: imports everything once, then runs the program in a fork each time, without starting an
interpreter.

Input: one JSON object per line, ``{"argv", "environment", "cwd", "output"}``. Output: ``{"pid"}`` as soon as
it runs, then ``{"status"}`` as Popen reports it, negative for a signal. Standard output and error go to files
in the folder ``output``.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import pkgutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import iotrial.cli as cli

#: packages that verbs import late and that are slow to import
PACKAGES = ("audits", "cli", "design", "guest", "lab", "probe", "report", "runner", "stats", "store", "study")
LATE = ("jinja2",)

Order = dict[str, Any]


def load() -> None:
    for package in PACKAGES:
        found = importlib.import_module(f"iotrial.{package}")
        for module in pkgutil.walk_packages(found.__path__, f"iotrial.{package}."):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    from iotrial.lab import registry
    from iotrial.report import html
    from iotrial.study import catalogue

    html._template()
    registry.knobs()
    catalogue.find("files/permissions")


def child(order: Order, begin: Callable[[Order], Callable[[], None] | None] | None) -> None:
    """Run the program from start to end. ``begin`` may change it first, and returns a function to call at the
    end."""
    output = Path(order["output"])
    os.setsid()
    for name, descriptor in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        opened = os.open("/dev/null" if descriptor == 0 else output / name, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    faulthandler.register(signal.SIGUSR2)  # a waiting test sends SIGUSR2 after its timeout to get a traceback
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["iotrial", *order["argv"]]
    end = begin(order) if begin is not None else None
    status = 0
    try:
        cli.main()
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # as the interpreter would print it
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if end is not None:
        end()
    os._exit(status)


def serve(begin: Callable[[Order], Callable[[], None] | None] | None = None) -> None:
    load()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order: Order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(order, begin)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    serve()
