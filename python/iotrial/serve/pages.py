"""Make the answers: pages from templates, reports with a navigation bar, files to save.

Templates escape whatever they are given, use the report's style sheet, and hold no script. Addresses in them begin with the
request's root path, which holds the token.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from html import unescape
from importlib.resources import files

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import iotrial
from iotrial.legible import shown, shown_lines
from iotrial.report.notation import elided, percent
from iotrial.report.templating import environment
from iotrial.serve.jobs import NotReady
from iotrial.units import format_duration

REFRESH_S, QUIET_REFRESH_S = 2, 10  # until a page asks again; the second while a trial is running
_BODY = re.compile(r"<body\b[^>]*>")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')


def page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: object,
) -> Response:
    """The page of a template; what UTF-8 cannot say is replaced."""
    text = _rendered(request, template, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status, headers)


def message(
    request: Request, title: str, text: str, hint: str | None = None, *, status: int = 200
) -> Response:
    """A page that says one thing."""
    return page(request, "message.html.j2", status=status, title=title, text=text, hint=hint)


def report(request: Request, html: str, links: Mapping[str, str], downloads: Mapping[str, str]) -> Response:
    """A report's own page, below a bar with these links (paths by name); its content security policy is kept."""
    navbar = _rendered(request, "navbar.html.j2", links=links, downloads=downloads)
    policy = _POLICY.search(html)
    text = _BODY.sub(lambda body: body[0] + navbar, html, count=1)
    headers = {} if policy is None else {"content-security-policy": unescape(policy[1])}
    return HTMLResponse(text.encode("utf-8", "replace"), headers=headers)


def not_ready(request: Request, what: str, error: NotReady, *, download: bool = False) -> Response:
    """In place of what is not there yet; asks again by itself. ``download``: a file was wanted, which this is not."""
    if error.measuring:
        title, wait = f"{what} has not been looked at yet", QUIET_REFRESH_S
        text = "A trial is running, and analysing beside it would disturb it. This page goes on when it has ended."
    else:
        title, wait = f"{what} is being looked at", REFRESH_S
        text = "It is analysed and drawn; of a large trial that takes a while. This page goes on by itself."
    return page(
        request,
        "message.html.j2",
        status=503 if download else 202,
        headers={"retry-after": str(wait)},
        title=title,
        text=text,
        hint=None,
        refresh=wait,
    )


def download(body: bytes, media_type: str, name: str) -> Response:
    """A file to be saved under this name, which must be plain ASCII without quotes: it becomes part of a header."""
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", name)
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(body, headers=headers, media_type=media_type)


def style(request: Request) -> Response:
    """``/style.css``: the report's style sheet, and what lists and forms need besides."""
    headers = {"cache-control": "max-age=3600"} if request.url.query else {}
    return Response(_style(), headers=headers, media_type="text/css")


def prepare() -> None:
    """Load all templates, so that the first page does not wait for them."""
    for name in _environment().list_templates():
        if name.endswith(".j2"):
            _environment().get_template(name)


def _rendered(request: Request, template: str, **values: object) -> str:
    common = {
        "root": request.scope["root_path"],
        "version": iotrial.__version__,
        "warnings": (),
        "refresh": None,
        "style": _style_digest(),
    }
    return _environment().get_template(template).render({**common, **values})


@cache
def _style() -> bytes:
    report = files("iotrial.report").joinpath("templates", "report.css").read_bytes()
    return report + b"\n" + files("iotrial.serve").joinpath("templates", "serve.css").read_bytes()


@cache
def _style_digest() -> str:
    """Changes with the style sheet, so that a browser may keep it."""
    return hashlib.sha256(_style()).hexdigest()[:12]


@cache
def _environment() -> Environment:
    return environment(
        "iotrial.serve",
        shown=shown,
        shown_lines=shown_lines,
        elided=elided,
        percent=percent,
        duration=format_duration,
    )
