"""Build responses: pages from templates, reports with a navigation bar, downloads.

Templates escape all values, use the report's style sheet, and contain no script. URLs in them begin with the
request's root path, which contains the token.
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
from iotrial.report.html import environment
from iotrial.report.notation import elided, percent
from iotrial.terminal import escape, escape_lines
from iotrial.units import format_duration
from iotrial.web.jobs import NotReady

REFRESH_S, QUIET_REFRESH_S = 2, 10  # reload intervals of a page; the second applies while a trial is running
_BODY = re.compile(r"<body\b[^>]*>")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')


def render_page(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: object,
) -> Response:
    """Render a template as a page; characters that UTF-8 cannot encode are replaced."""
    text = _rendered(request, template, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status, headers)


def message(
    request: Request, title: str, text: str, hint: str | None = None, *, status: int = 200
) -> Response:
    """Return a page with a single message."""
    return render_page(request, "message.html.j2", status=status, title=title, text=text, hint=hint)


def report(request: Request, html: str, links: Mapping[str, str], downloads: Mapping[str, str]) -> Response:
    """Return a report's own page below a bar with these links (paths by name), keeping its content security policy."""
    navbar = _rendered(request, "navbar.html.j2", links=links, downloads=downloads)
    policy = _POLICY.search(html)
    text = _BODY.sub(lambda body: body[0] + navbar, html, count=1)
    headers = {} if policy is None else {"content-security-policy": unescape(policy[1])}
    return HTMLResponse(text.encode("utf-8", "replace"), headers=headers)


def not_ready(request: Request, what: str, error: NotReady, *, download: bool = False) -> Response:
    """Return a placeholder page that reloads itself. ``download``: a file was requested, which this is not."""
    if error.measuring:
        title, wait = f"{what} has not been analysed yet", QUIET_REFRESH_S
        text = "A trial is running, and an analysis would disturb it. This page continues when the trial has ended."
    else:
        title, wait = f"{what} is being analysed", REFRESH_S
        text = "A large trial takes a while. This page reloads by itself."
    return render_page(
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
    """Return a file download with this name, which must be plain ASCII without quotes: it becomes part of a header."""
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", name)
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(body, headers=headers, media_type=media_type)


def style(request: Request) -> Response:
    """``/style.css``: the report's style sheet, plus styles for lists and forms."""
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
    return report + b"\n" + files("iotrial.web").joinpath("templates", "serve.css").read_bytes()


@cache
def _style_digest() -> str:
    """Return a hash that changes with the style sheet, so that browsers can cache it."""
    return hashlib.sha256(_style()).hexdigest()[:12]


@cache
def _environment() -> Environment:
    return environment(
        "iotrial.web",
        shown=escape,
        shown_lines=escape_lines,
        elided=elided,
        percent=percent,
        duration=format_duration,
    )
