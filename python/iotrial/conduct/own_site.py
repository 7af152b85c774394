"""A site that a study makes in the lab, and the server that it starts for it: for works that are served by one of
their own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

from iotrial.conduct.works.contract import Situation, filled, minimal_environment
from iotrial.errors import LabError
from iotrial.lab.server import Server

LOOPBACK = "127.0.0.1"
#: how long a site may take to be made, and a server to be ready or to end
MAKE_S, START_S = 120.0, 30.0


class Served(Protocol):
    """What such a work declares."""

    @property
    def serve(self) -> tuple[str, ...]:
        """The server's program and arguments; empty where it starts none."""

    @property
    def serve_environment(self) -> tuple[tuple[str, str], ...]:
        """Its variables."""

    @property
    def make(self) -> tuple[str, ...]:
        """What fills the site."""

    @property
    def make_input(self) -> str:
        """The standard input of that."""


def make(work: Served, at: Situation) -> None:
    """The site, made once in a lab; and the server's empty folder. Raises LabError where its program fails."""
    own_folder(at, f"{at.own}/scratch")
    site = folder(work, at)
    if at.target.exists(f"{site}.made"):
        return
    own_folder(at, site)
    if work.make:
        done = at.target.call(
            "run",
            argv=[program(work.make[0], at), *work.make[1:]],
            environment=minimal_environment(),
            cwd=site,
            stdin=work.make_input,
            timeout_s=MAKE_S,
            user=None if at.user is None else dict(at.user),
        )
        if done["exit"] != 0:
            how = "did not end in time" if done["timed_out"] else f"ended with status {done['exit']}"
            raise LabError(f"making the site: {work.make[0]} {how}: {str(done['stderr']).strip()[-400:]}")
    at.target.call("syncfs", path=at.root)
    at.target.call("mkdir", path=f"{site}.made", mode="0755")


def server(work: Served, at: Situation) -> Server | None:
    """The server as it is started for a run; None where the work starts none."""
    if not work.serve:
        return None
    values: Mapping[str, str] = {
        "{address}": f"{LOOPBACK}:{at.port}",
        "{port}": str(at.port),
        "{site}": folder(work, at),
        "{scratch}": f"{at.own}/scratch",
    }
    argv = tuple(filled(filled(word, at.arguments), values) for word in work.serve)
    environment = {name: filled(value, at.arguments) for name, value in work.serve_environment}
    return Server(
        name="site",
        argv=(program(argv[0], at), *argv[1:]),
        ready={"tcp": at.port},
        environment={**minimal_environment(), **environment},
        cwd=folder(work, at),
        timeout_s=START_S,
        stop_timeout_s=START_S,
    )


def folder(work: Served, at: Situation) -> str:
    """The folder of the site: one for each way of making it, of which a lab may have several."""
    made = "\0".join((*work.make, work.make_input)).encode()
    return f"{at.own}/site-{hashlib.sha256(made).hexdigest()[:12]}"


def program(name: str, at: Situation) -> str:
    """The study's program, or the one that the user has chosen: by itself, or by its folder."""
    if at.program is None:
        return name
    is_folder = at.target.call("stat", path=at.program, follow=True)["kind"] == "directory"
    return f"{at.program}/{name}" if is_folder else at.program


def own_folder(at: Situation, path: str) -> None:
    """An empty folder, of whoever the programs are."""
    at.target.call("remove", path=path, recursive=True)
    at.target.call("mkdir", path=path, mode="0755", owner=None if at.user is None else dict(at.user))
