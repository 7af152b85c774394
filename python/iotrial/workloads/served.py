"""A server that a workload starts for each run, and the site that is created for it in the lab, once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta

from iotrial.errors import LabError
from iotrial.study.schema import Arguments, Line, LongText, Problem, Variables
from iotrial.study.server import Server
from iotrial.study.work import (
    FileSet,
    HasServer,
    LabContext,
    Step,
    check_program,
    filled,
    minimal_environment,
    only_for,
)

LOOPBACK = "127.0.0.1"
#: timeouts for making a site, and for starting or stopping a server
MAKE_S, START_S = 120.0, 30.0


class ServedWork(HasServer, FileSet, frozen=True, kw_only=True):
    """A workload with an optional server of the study.

    ``serve`` starts it for each run, ``make`` fills its site in the lab, once. Neither uses a shell.
    """

    serve: Annotated[
        Arguments,
        Meta(
            description=(
                "server to start for each run (program and arguments). It must stay in the foreground and"
                " listen on `{address}` or `{port}` (127.0.0.1; also valid in `argv`, `stdin`, "
                "`environment`). `{site}`: folder filled by `make`; `{scratch}`: empty folder"
            )
        ),
    ] = ()
    serve_environment: Annotated[
        Variables, Meta(description="added to the server's minimal environment")
    ] = ()
    make: Annotated[
        Arguments,
        Meta(description="program that fills `{site}` (its working folder) once, before the first run"),
    ] = ()
    make_input: Annotated[LongText, Meta(description="instead of `make_file`: the text")] = ""

    def check_serving(self) -> None:
        """Raise Problem for programs without a name, an input or an address."""
        if self.make_input and not self.make:
            raise Problem("input text without a program", "make_input")
        for argv, name in ((self.serve, "serve"), (self.make, "make")):
            check_program(argv, name)
        for name in ("serve_environment", "make"):
            if getattr(self, name) and not self.serve:
                raise only_for(name, "a server that the study starts (serve)")
        if self.serve and not any("{address}" in word or "{port}" in word for word in self.serve):
            message = "the server gets no address to listen on"
            raise Problem(message, "serve", hint="add {address} or {port} to its arguments")

    def served_texts(self) -> Iterator[str]:
        """Yield the texts of the server in which a placeholder may occur."""
        yield from self.serve
        yield from (value for _, value in self.serve_environment)

    def served_steps(self) -> tuple[Step, ...]:
        """Return the server's programs as commands."""
        return tuple(Step(name, argv) for name, argv in (("serve", self.serve), ("make", self.make)) if argv)

    def where(self, lab: LabContext) -> Mapping[str, str]:
        """Return the values of the server's placeholders; empty without a server."""
        if not self.serve:
            return {}
        return {
            "{address}": f"{LOOPBACK}:{lab.port}",
            "{port}": str(lab.port),
            "{site}": site_folder(self, lab),
            "{scratch}": f"{lab.own}/scratch",
        }

    def started_servers(self, lab: LabContext) -> tuple[Server, ...]:
        if not self.serve:
            return ()
        values = self.where(lab)
        argv = tuple(filled(filled(word, lab.arguments), values) for word in self.serve)
        environment = {name: filled(value, lab.arguments) for name, value in self.serve_environment}
        server = Server(
            name="site",
            argv=(program_of(argv[0], lab), *argv[1:]),
            ready={"tcp": lab.port},
            environment={**minimal_environment(), **environment},
            cwd=site_folder(self, lab),
            timeout_s=START_S,
            stop_timeout_s=START_S,
        )
        return (server,)

    def listens(self) -> bool:
        return bool(self.serve)

    def takes_program(self) -> bool:
        return bool(self.serve)

    def provide(self, lab: LabContext) -> None:
        if self.serve:
            lab.target.call("mkdir", path=lab.own, mode="0755")
            make_site(self, lab)


#: the key that names a text file for ``make``, for ``file_keys`` of a kind with a server
MAKE_FILE = {
    "make_file": Annotated[
        Line,
        Meta(description=("file with the standard input of `make`; as `stdin_file`")),
    ]
}


def make_site(work: ServedWork, lab: LabContext) -> None:
    """Make the site, once per lab, and empty the server's scratch folder. Raises LabError if its program fails."""
    own_folder(lab, f"{lab.own}/scratch")
    site = site_folder(work, lab)
    if lab.target.exists(f"{site}.made"):
        return
    own_folder(lab, site)
    if work.make:
        done = lab.target.run(
            [program_of(work.make[0], lab), *work.make[1:]],
            environment=minimal_environment(),
            cwd=site,
            stdin=work.make_input,
            timeout_s=MAKE_S,
            user=lab.user,
        )
        if done.exit_status != 0:
            how = "did not end in time" if done.timed_out else f"ended with status {done.exit_status}"
            raise LabError(f"cannot make the site: {work.make[0]} {how}: {done.stderr.strip()[-400:]}")
    lab.target.call("syncfs", path=lab.root)
    lab.target.call("mkdir", path=f"{site}.made", mode="0755")


def site_folder(work: ServedWork, lab: LabContext) -> str:
    """Return the folder of the site: one for each way of making it, since a lab may have several."""
    made = "\0".join((*work.make, work.make_input)).encode()
    return f"{lab.own}/site-{hashlib.sha256(made).hexdigest()[:12]}"


def program_of(name: str, lab: LabContext) -> str:
    """Return the study's program, or the one the user chose, given as a program or its folder."""
    if lab.program is None:
        return name
    is_folder = lab.target.call("stat", path=lab.program, follow=True)["kind"] == "directory"
    return f"{lab.program}/{name}" if is_folder else lab.program


def own_folder(lab: LabContext, path: str, mode: str = "0755") -> None:
    """Create an empty folder owned by the user of the programs."""
    lab.target.call("remove", path=path, recursive=True)
    lab.target.call("mkdir", path=path, mode=mode, owner=None if lab.user is None else dict(lab.user))
