"""What stands before every page: how it may be asked, and what a browser may do with the answer.

Names that point at 127.0.0.1 from outside (DNS rebinding), other methods, and requests that another site's page makes are
refused before anything is looked at. Whatever goes wrong becomes a page, and the server lives.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from typing import Any

from iotrial.errors import IotrialError, RequestError, UnknownName
from iotrial.legible import shown
from iotrial.serve.address import names_this_machine
from iotrial.serve.rendering import said_page

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]

#: of a page that names no other
POLICY = "default-src 'none'; style-src 'self'; img-src data:"
#: of every page, whatever else it allows
ALWAYS = "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


class Gate:
    """An ASGI application around another."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            return
        guarded = _Guarded(send)
        refused = refusal(scope["method"], [(bytes(n), bytes(v)) for n, v in scope["headers"]])
        if refused is not None:
            await _say(scope, guarded, *refused)
            return
        try:
            await self._app(scope, receive, guarded)
        except IotrialError as error:
            await _say(scope, guarded, _status(error), _title(error), error.message, error.hint)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            told = shown(f"{type(error).__name__}: {error}")[:300]
            await _say(
                scope, guarded, 500, "That is a mistake of iotrial's", told, "other pages may still be there"
            )


class _Guarded:
    """Sends, with the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            given = {bytes(name).lower(): value for name, value in message.get("headers", ())}
            message = {**message, "headers": list(_guarded(given).items())}
        await self._send(message)


def _guarded(given: dict[bytes, bytes]) -> dict[bytes, bytes]:
    policy = given.pop(b"content-security-policy", POLICY.encode())
    headers = {b"cache-control": b"no-store", **given, **_HEADERS}
    return {**headers, b"content-security-policy": policy + b"; " + ALWAYS.encode()}


@cache
def not_for_this_user() -> bytes:
    """The whole answer to a connection of another user."""
    body = said_page(
        "Not for this user",
        "these pages are for the user of this machine who started them",
        "`iotrial serve --all-users` answers every user of the machine",
    )
    headers = _guarded({b"content-type": b"text/html; charset=utf-8", b"connection": b"close"})
    lines = [b"HTTP/1.1 403 Forbidden", b"content-length: %d" % len(body)]
    lines += [name + b": " + value for name, value in headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def refusal(method: str, headers: list[tuple[bytes, bytes]]) -> tuple[int, str, str, str] | None:
    """Status, title, what is wrong and what to do, of a request that is not answered; None for one that is."""
    if method not in ("GET", "HEAD"):
        return (
            405,
            "Only looking is possible here",
            "wanted GET or HEAD",
            "trials are made on the command line",
        )
    hosts = [value for name, value in headers if name.lower() == b"host"]
    if len(hosts) != 1 or not names_this_machine(hosts[0].decode("latin-1")):
        return (
            421,
            "Not under this name",
            "wanted a loopback name of this machine in the address",
            "open http://127.0.0.1 with the port that the server named",
        )
    fetched = {
        name.lower(): value.lower() for name, value in headers if name.lower().startswith(b"sec-fetch-")
    }
    foreign = fetched.get(b"sec-fetch-site") in (b"cross-site", b"same-site")
    if foreign and (fetched.get(b"sec-fetch-mode"), fetched.get(b"sec-fetch-dest")) != (
        b"navigate",
        b"document",
    ):
        return (
            403,
            "Not for other pages",
            "another site's page asked for this",
            "open it in a window of its own",
        )
    return None


def _title(error: IotrialError) -> str:
    if _status(error) == 404:
        return "There is no such trial"
    if _status(error) == 400:
        return "That could not be understood"
    return "The store cannot be read" if error.message.startswith("store ") else "This cannot be shown"


def _status(error: IotrialError) -> int:
    if isinstance(error, UnknownName):
        return 404
    if isinstance(error, RequestError):
        return 400
    return 503 if error.code == "store" else 500


async def _say(scope: Scope, send: _Guarded, status: int, title: str, text: str, hint: str | None) -> None:
    if send.begun:  # half an answer cannot be taken back
        return
    body = said_page(title, text, hint)
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 405:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
