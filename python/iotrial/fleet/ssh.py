"""Hosts reached by SSH: ``ssh HOST iotrial fleet worker`` starts a Dask worker there; the scheduler runs here.

Dask's connections go through the ssh connection, by one forwarded port each way on the loopback interfaces.
So a host needs no open port but SSH's, and SSH does the authentication. The ports use TLS with keys made for
this one run, which are sent on standard input: other users of a host can neither connect nor read the keys in
the process list.

Dask's own ``SSHCluster`` is not suitable. It puts all options of a worker on the host's command line, where
every user can read them; it needs open ports between all machines; its scheduler outlives a killed
coordinator; one host that does not answer aborts the start of all others, without a reason; and a worker
is not restarted when its connection breaks.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from iotrial import __version__
from iotrial.errors import IotrialError, MissingTool, PrivilegeError, RequestError
from iotrial.fleet.batch import Lost
from iotrial.fleet.engine import GREETING, READY, configured
from iotrial.fleet.hosts import HOSTS, SSH_CONFIG, DaskHosts, DaskLink
from iotrial.fleet.keys import INSTALL, Keys, Part, new_keys
from iotrial.fleet.order import HOST_NAME, Distrusted
from iotrial.terminal import escape
from iotrial.workers import start_worker

MOST_HOSTS = 1000
CONNECT_S = 15
BEGIN_S = 180.0  # timeout from starting ssh until the worker has joined
AGAIN_AFTER_S = 3.0
CLEAN_S = 300.0
#: bytes kept of standard error, and limit on a login shell's output before the worker's greeting
MOST_KEPT = 4096
MOST_BEFORE = 65_536
#: forwarded ports on a host: below Linux's range for outgoing connections
_PORTS = range(20_000, 32_000)
_AT_ONCE = 16
_beginning = threading.BoundedSemaphore(_AT_ONCE)

_OPTIONS = (
    "BatchMode=yes",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    f"ConnectTimeout={CONNECT_S}",
    "LogLevel=INFO",
    "ExitOnForwardFailure=no",  # the user's configuration may forward ports that are taken
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "EscapeChar=none",
    "ControlPath=none",  # a shared connection would outlive this process, with its forwarded ports
)
_USER = r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"
_PORT = r"(?::(?P<port>[0-9]{1,5}))?"
_NAMED = re.compile(_USER + r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252})" + _PORT)
_NUMBERED = re.compile(_USER + r"\[(?P<host>[0-9A-Fa-f][0-9A-Fa-f:.]{0,44}|::[0-9A-Fa-f:.]{0,43})\]" + _PORT)

#: where installers put programs for one user; often not on the PATH of a non-interactive shell
_PATH = "PATH=$PATH:$HOME/.local/bin:/usr/local/bin"
_CLEAN = (
    "c=${XDG_CACHE_HOME:-$HOME/.cache}/iotrial; n=0; "
    'for d in "$c"/bundle-* "$c"/part-*; do test -d "$d" && rm -rf "$d" && n=$((n+1)); done; '
    'rmdir "$c" 2>/dev/null; echo removed $n'
)


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of an ssh connection."""

    host: str
    user: str | None = None
    port: int | None = None

    @property
    def name(self) -> str:
        """The host's name in the fleet: without the user, with the port if one is given."""
        plain = self.host.strip(":").replace("::", "-").replace(":", "-")
        return (plain or "any") if self.port is None else f"{plain or 'any'}-{self.port}"

    @property
    def argv(self) -> tuple[str, ...]:
        """The last arguments of ssh before the command."""
        user = () if self.user is None else ("-l", self.user)
        port = () if self.port is None else ("-p", str(self.port))
        return (*user, *port, "--", self.host)

    @property
    def typed(self) -> str:
        """What a user types after `ssh`."""
        port = "" if self.port is None else f"-p {self.port} "
        return f"{port}{'' if self.user is None else self.user + '@'}{self.host}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'' if self.user is None else self.user + '@'}{host}{'' if self.port is None else f':{self.port}'}"


@dataclass(frozen=True, slots=True)
class Ssh:
    """How to reach one host. ``config`` replaces the user's own configuration (`ssh -F`)."""

    destination: Destination
    config: Path | None = None

    def argv(self, command: str, *forwards: str) -> tuple[str, ...]:
        """Return the whole command line; the host's shell parses ``command``."""
        program = shutil.which("ssh")
        if program is None:
            raise MissingTool("--hosts needs the program ssh", hint="Debian: apt install openssh-client")
        config = () if self.config is None else ("-F", str(self.config))
        options = [word for option in _OPTIONS for word in ("-o", option)]
        return (program, *config, "-T", *options, *forwards, *self.destination.argv, command)

    def start(self, command: str, *forwards: str) -> subprocess.Popen[bytes]:
        """Start ssh in a new session, so that Ctrl-C at the terminal does not cut the connection."""
        return subprocess.Popen(
            self.argv(command, *forwards),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=_environment(),
        )


def _environment() -> dict[str, str]:
    """Return the environment of ssh: English messages, which are parsed, and no graphical password prompt."""
    return {**os.environ, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"}


def reached_by_ssh(hosts: str, config: str | None) -> dict[str, str]:
    """Return the record entries of the fleet. Raises RequestError for a bad host name or a missing file."""
    found = {HOSTS: ",".join(map(str, destinations(hosts)))}
    return found if config is None else {**found, SSH_CONFIG: str(_config(config))}


def ssh_ways(hosts: str, config: str | None) -> list[Ssh]:
    """Return how to reach each host. Raises as ``reached_by_ssh``."""
    file = None if config is None else _config(config)
    return [Ssh(one, file) for one in destinations(hosts)]


class SshHosts(DaskHosts):
    """The named hosts: a scheduler here, and a worker that ssh keeps running on each of them."""

    def __init__(self, ways: Sequence[Ssh]) -> None:
        """Start everything; wait only for the scheduler."""
        configured()
        made = new_keys()
        self._connections: dict[str, _Connection] = {}
        self._scheduler, address = _start_scheduler(Keys.of(made, Part.SCHEDULER))
        try:
            super().__init__(address, Keys.of(made, Part.CLIENT))
            for way in ways:
                name = way.destination.name
                self._links[name] = DaskLink(name, self)
                self._connections[name] = _Connection(way, address, Keys.of(made, Part.WORKER))
        except BaseException:
            self.close()
            raise

    def wait(self) -> dict[str, IotrialError]:
        """Wait until each host has joined or failed once. Return the failures by name; a ``Lost`` one is retried."""
        for connection in self._connections.values():
            connection.tried.wait()
        return {name: one.problem for name, one in self._connections.items() if one.problem is not None}

    def check(self) -> dict[str, IotrialError]:
        """Do as ``wait``, for a fleet that has not begun.

        Raises RequestError or a related error if a host can never take part as it is, and Lost if no host can
        be reached.
        """
        found = self.wait()
        refused = [error for error in found.values() if not isinstance(error, Lost)]
        if refused:
            first = refused[0]
            privileges = all(isinstance(error, PrivilegeError) for error in refused)
            kind = PrivilegeError if privileges else RequestError
            if len(self._connections) == 1:
                raise kind(first.message, hint=first.hint)
            raise kind(
                f"{len(refused)} of {len(self._connections)} hosts cannot take part; no trial was started: "
                + "; ".join(error.message for error in refused),
                hint=first.hint,
            )
        if len(found) == len(self._connections):
            raise Lost(
                "no host can be reached: " + "; ".join(error.message for error in found.values()),
                hint="does `ssh HOST` work for one of them?",
            )
        return found

    def close(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(_Connection.close, self._connections.values()))
        super().close()
        _end(self._scheduler)
        assert self._scheduler.stdout is not None
        self._scheduler.stdout.close()

    def is_of(self, name: str, address: str) -> bool:
        """Accept a worker as a host only if it is reached through the ssh connection to that host."""
        connection = self._connections.get(name)
        return connection is not None and connection.address == address

    def absent(self, name: str) -> IotrialError:
        return self._connections[name].problem or super().absent(name)


class _Connection:
    """Keeps a worker running on one host: ssh is restarted whenever it ends."""

    def __init__(self, way: Ssh, scheduler: str, keys: Keys) -> None:
        self._way = way
        self._scheduler_port = int(scheduler.rpartition(":")[2])
        self._keys = keys
        self._closing = threading.Event()
        self._joined = False
        self._process: subprocess.Popen[bytes] | None = None
        #: set after the first attempt: a worker has joined, or the attempt has failed
        self.tried = threading.Event()
        #: why there is no worker now
        self.problem: IotrialError | None = None
        #: where the scheduler reaches the worker
        self.address = ""
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the worker, not its trial: the host's grace period starts."""
        self._closing.set()
        process = self._process
        if process is not None:
            _end(process)
        self._thread.join(30)

    def _keep(self) -> None:
        while not self._closing.is_set():
            try:
                self._once()
            except IotrialError as error:
                # a host that has joined once may come back
                self.problem = Lost(error.message, hint=error.hint) if self._joined else error
            except (OSError, ValueError) as error:  # the process could not be started, or a pipe was closed
                self.problem = Lost(f"host {self._way.destination}: {error}")
            self.tried.set()
            self._closing.wait(AGAIN_AFTER_S)

    def _once(self) -> None:
        """Run one ssh from its start to its end. Always raises: the error says why it ended."""
        with _beginning:
            process = self._started()
            tail = _Tail(process.stderr)
            too_late = threading.Timer(BEGIN_S, process.kill)
            too_late.start()
            try:
                joined = self._join(process)
            except BrokenPipeError:
                joined = False  # ssh gives the reason on standard error
            except BaseException:
                _end(process)
                raise
            finally:
                too_late.cancel()
        assert process.stdout is not None
        if joined:
            self._joined = True
            self.problem = None
            self.tried.set()
            while process.stdout.read(MOST_KEPT):  # until ssh ends
                pass
        _end(process)
        process.stdout.close()
        raise failure(self._way.destination, process.returncode, tail.text())

    def _started(self) -> subprocess.Popen[bytes]:
        here, there, back = _free_port(), random.choice(_PORTS), random.choice(_PORTS)
        self.address = f"tls://127.0.0.1:{here}"
        words = (
            f"iotrial fleet worker tls://127.0.0.1:{back} --keys - --name {self._way.destination.name} "
            f"--bind 127.0.0.1:{there} --contact {self.address}"
        )
        self._process = self._way.start(
            _in_shell(f"{_PATH}; exec {words}"),
            "-L", f"127.0.0.1:{here}:127.0.0.1:{there}",
            "-R", f"127.0.0.1:{back}:127.0.0.1:{self._scheduler_port}",
        )  # fmt: skip
        if self._closing.is_set():
            self._process.kill()
        return self._process

    def _join(self, process: subprocess.Popen[bytes]) -> bool:
        """Return whether the worker joins; if not, ssh has ended or will.

        Raises RequestError for another version of iotrial.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        host = str(self._way.destination)
        version = _after(GREETING, process.stdout, host)
        if version is None:
            return False
        if version != __version__:
            raise RequestError(
                f"host {host}: has iotrial {escape(version[:40])}, this machine has {__version__}",
            )
        process.stdin.write(self._keys.line())
        process.stdin.flush()
        return _after(READY, process.stdout, host) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close ssh's standard input, which ends the worker; kill ssh after a timeout."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Tail:
    """Reads a pipe to its end in a thread and keeps the last bytes."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._pipe = pipe
        self._kept = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> bytes:
        """Return the last bytes, after the pipe has ended."""
        self._thread.join(5)
        return self._kept

    def _read(self) -> None:
        with self._pipe, suppress(OSError, ValueError):
            while piece := os.read(self._pipe.fileno(), MOST_KEPT):
                self._kept = (self._kept + piece)[-MOST_KEPT:]


def _after(word: str, pipe: IO[bytes], host: str) -> str | None:
    """Return the rest of the line that begins with ``word``, skipping what a login shell prints; None if the pipe ends.

    Raises Distrusted if too much comes before it.
    """
    left = MOST_BEFORE
    while left > 0:
        line = pipe.readline(left)
        if not line:
            return None
        left -= len(line)
        text = line.decode("utf-8", "replace").strip()
        if text.startswith(f"{word} "):
            return text[len(word) + 1 :]
    raise Distrusted(
        f"host {host}: prints more than {MOST_BEFORE} bytes before the output of iotrial",
        hint="does its shell print something when it starts?",
    )


def _in_shell(script: str) -> str:
    """Return a command that runs a script by POSIX sh, whatever the login shell is."""
    assert not {"'", "!"} & set(script)
    return f"exec sh -c '{script}'"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def _start_scheduler(keys: Keys) -> tuple[subprocess.Popen[bytes], str]:
    """Start a scheduler that only this machine can connect to; return the process and its address.

    It ends with its standard input.
    """
    words = ("fleet", "scheduler", "--bind", "127.0.0.1:0", "--keys", "-")
    process = start_worker("iotrial", *words, quiet=True, apart=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.write(keys.line())
        process.stdin.flush()
    address = process.stdout.readline().decode().strip()
    if not address.startswith("tls://"):
        _end(process)
        raise IotrialError(
            "the scheduler of the fleet did not start",
            hint="`iotrial fleet scheduler --bind 127.0.0.1:0 --keys FOLDER`, with keys of `iotrial fleet "
            "keys`, says why",
        )
    return process, address


def clean_hosts(ways: Sequence[Ssh]) -> dict[str, int | IotrialError]:
    """Remove what earlier versions copied to hosts. Return the number of folders removed, or the error, by host name."""

    def cleaned(way: Ssh) -> int | IotrialError:
        try:
            done = subprocess.run(
                way.argv(_in_shell(_CLEAN)),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=CLEAN_S,
                env=_environment(),
            )
        except subprocess.TimeoutExpired:
            return Lost(f"host {way.destination}: no answer within {CLEAN_S:g} s")
        except IotrialError as error:
            return error
        found = re.search(rb"^removed ([0-9]{1,6})$", done.stdout, re.MULTILINE)
        if done.returncode or found is None:
            return failure(way.destination, done.returncode, done.stderr[-MOST_KEPT:])
        return int(found[1])

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(cleaned, ways))
    return {way.destination.name: answer for way, answer in zip(ways, answers, strict=True)}


def stderr_in_words(stderr: bytes) -> str:
    """Return standard error as one line, without terminal control characters."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    return escape(" / ".join(line for line in lines if line and set(line) != {"@"})[-600:])


def failure(destination: Destination, status: int, stderr: bytes) -> IotrialError:
    """Return an error that explains why ssh ended with this status (255: ssh itself failed) and this output.

    RequestError, PrivilegeError: it will fail again. Lost: the host may come back.
    """
    words = stderr_in_words(stderr) or "no output"
    host = str(destination)
    decoded = stderr.decode("utf-8", "replace")
    # a program on the host could print ssh's messages, but not end with ssh's status
    text = decoded if status == 255 else ""
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return RequestError(
            f"host {host}: its SSH host key has changed; nothing was sent",
            hint="find out why; `ssh-keygen -R HOST` removes the old key once you have verified the new one",
        )
    if "Host key verification failed" in text or "host key is known for" in text:
        return RequestError(
            f"host {host}: its SSH host key is unknown, and iotrial never accepts unknown keys; nothing was sent",
            hint=f"`ssh {destination.typed}` once by hand shows its fingerprint: verify it, then accept it",
        )
    if "Permission denied" in text or "Too many authentication failures" in text:
        return PrivilegeError(
            f"host {host}: no access ({words})",
            hint=f"`ssh -o BatchMode=yes {destination.typed} true` has to work: use a key in ssh-agent or "
            f"without passphrase, with its public part in authorized_keys there (ssh-copy-id)",
        )
    if "Bad configuration option" in text or "Can't open user config file" in text:
        return RequestError(f"host {host}: {words}")
    if status == 255:
        return Lost(f"host {host}: cannot be reached ({words})", hint=f"does `ssh {destination.typed}` work?")
    if status in (126, 127):
        return RequestError(
            f"host {host}: no executable iotrial on its PATH ({words})",
            hint=f"{INSTALL} there, version {__version__}, where `ssh {destination.typed} iotrial --version` "
            f"finds it "
            "(~/.local/bin and /usr/local/bin are searched too)",
        )
    if "remote port forwarding failed" in decoded or "administratively prohibited" in decoded:
        return RequestError(
            f"host {host}: its sshd does not allow port forwarding ({words})",
            hint="set AllowTcpForwarding yes in its sshd_config, or run a scheduler and workers yourself (`run "
            "--fleet`)",
        )
    if status == 2:
        return RequestError(
            f"host {host}: its iotrial refused ({words})", hint=f"it needs version {__version__}"
        )
    return Lost(f"host {host}: its worker ended with status {status} ({words})")


def destinations(text: str) -> tuple[Destination, ...]:
    """Parse a comma-separated list of hosts. Raises RequestError for none, for a bad name, and for duplicates.

    Checked before any program sees them: a name cannot be an option of ssh, mean more than a name to the
    shell of a ProxyCommand, or control a terminal.
    """
    found = [_destination(word.strip()) for word in text.split(",") if word.strip()]
    if not found:
        raise RequestError("--hosts: no host given")
    if len(found) > MOST_HOSTS:
        raise RequestError(f"--hosts: {len(found)} hosts, the maximum by SSH is {MOST_HOSTS}")
    seen: set[str] = set()
    for one in found:
        if one.name.lower() in seen:
            raise RequestError(
                f"--hosts: {one.name} is named twice",
                hint="each host can take part only once: two trials on one host would disturb each other",
            )
        seen.add(one.name.lower())
    return tuple(found)


def _destination(word: str) -> Destination:
    match = _NAMED.fullmatch(word) or _NUMBERED.fullmatch(word)
    if match is None:
        raise RequestError(
            f'--hosts: "{escape(word[:100])}" is not a valid host',
            hint="letters, digits, dots and hyphens, as in host, user@host, host:2222 or [2001:db8::1]:22; "
            "put anything else into ~/.ssh/config",
        )
    port = None if match["port"] is None else int(match["port"])
    if port is not None and not 1 <= port <= 65_535:
        raise RequestError(f"--hosts: port {port} of {match['host']} is not in 1 to 65535")
    found = Destination(match["host"], match["user"], port)
    if not HOST_NAME.fullmatch(found.name):
        raise RequestError(
            f"--hosts: {found.name} is longer than 63 characters, the maximum for a host's name in a fleet",
            hint="give it a short name in ~/.ssh/config (Host short, HostName long)",
        )
    return found


def _config(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise RequestError(
            f"--ssh-config: {path} is not a file", hint="name a file in the format of ssh_config(5)"
        )
    return path
