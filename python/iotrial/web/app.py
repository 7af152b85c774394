"""The web application: routes, and checks on every request.

Rejected before any processing: other host names that resolve to 127.0.0.1 (DNS rebinding), other methods,
requests without the token, and requests from other sites' pages. An error becomes a page; the server keeps
running.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from secrets import compare_digest
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from iotrial.errors import IotrialError, RequestError, StoreError, UnknownName
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState
from iotrial.terminal import escape
from iotrial.web import history_page, trial_list, trial_page
from iotrial.web.jobs import NotReady
from iotrial.web.pages import download, message, not_ready, prepare, render_page, report, style
from iotrial.web.query_params import pairs_of, trials_of
from iotrial.web.store_view import StoreView

#: content security policy of a page that sets none
POLICY = "default-src 'none'; style-src 'self'; img-src data:"
#: added to every page's policy
ALWAYS = "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def application(store: Path, *, hosts: Sequence[str], token: str | None, background: bool) -> ASGIApp:
    """Return the ASGI application over the store in this file, which need not exist yet.

    It accepts the host names ``hosts``, and paths that begin with the ``token`` (None: no token).
    ``background``: lower its priority.
    """
    view = StoreView(store, background=background)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        view.close()

    pages = {
        "/": trial_list.page,
        "/compare": page,
        "/compare/report.json": as_json,
        "/compare/report.md": as_markdown,
        "/history": history_page.page,
        "/trials/{number}": trial_page.page,
        "/trials/{number}/report.json": trial_page.as_json,
        "/trials/{number}/report.md": trial_page.as_markdown,
        "/trials/{number}/trial.iotrial": trial_page.as_packed,
    }
    app = Starlette(
        routes=[
            *(Route(path, partial(answer, view)) for path, answer in pages.items()),
            Route("/style.css", style),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
        exception_handlers={IotrialError: _failed, 404: _not_found, Exception: _internal_error},  # type: ignore[dict-item]
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    prepare()  # while the process has the processor to itself
    return Guard(app, token)


class Guard:
    """Middleware around everything else: rejects requests, and adds headers to every response."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._root = "" if token is None else f"/{token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(sent: Message) -> None:
            if sent["type"] == "http.response.start":
                _guard(MutableHeaders(scope=sent))
            await send(sent)

        path = str(scope["path"])
        beginning = path[: len(self._root)].encode("utf-8", "replace")
        known = compare_digest(beginning, self._root.encode()) and path[len(self._root) :][:1] in ("", "/")
        answer = refusal(scope["method"], Headers(scope=scope), token=known) or self._app
        path = path if path != self._root else f"{path}/"
        await answer({**scope, "root_path": self._root, "path": path}, receive, guarded)


def refusal(method: str, headers: Headers, *, token: bool) -> Response | None:
    """Return the response to a request that is rejected, or None. ``token``: whether the request has the right one."""
    if method not in ("GET", "HEAD"):
        text = "Read-only: only GET and HEAD are supported. Trials are run on the command line.\n"
        return PlainTextResponse(text, 405, {"allow": "GET, HEAD"})
    if not token:
        text = "These pages need a token: open the whole address that `iotrial serve` printed.\n"
        return PlainTextResponse(text, 403)
    foreign = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    followed = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    if foreign and not followed:
        return PlainTextResponse(
            "Another site's pages may link here, but cannot load anything from here.\n", 403
        )
    return None


def _guard(headers: MutableHeaders) -> None:
    headers.setdefault("cache-control", "no-store")
    headers.update(HEADERS)
    headers["content-security-policy"] = f"{headers.get('content-security-policy', POLICY)}; {ALWAYS}"


async def _failed(request: Request, error: IotrialError) -> Response:
    if isinstance(error, UnknownName):
        title, status = "No such trial", 404
    elif isinstance(error, RequestError):
        title, status = "Bad request", 400
    else:
        whole = error.message.startswith("store ")
        title = "The store cannot be read" if whole else "This page cannot be shown"
        status = 503 if isinstance(error, StoreError) else 500
    return message(request, title, error.message, error.hint, status=status)


async def _not_found(request: Request, _: Exception) -> Response:
    return message(request, "No such page", "use the links of these pages", status=404)


async def _internal_error(request: Request, error: Exception) -> Response:
    """Show an error page. Starlette then re-raises the error, and uvicorn logs it to standard error."""
    text = escape(f"{type(error).__name__}: {error}")[:300]
    return message(request, "Internal error", text, "other pages may still work", status=500)


# Compare several trials: the page that ``iotrial compare --html`` writes, and the form that leads to it.


def page(view: StoreView, request: Request) -> Response:
    """``/compare?trials=1,2``; with ``choose`` the form, even if trials are named."""
    pairs = pairs_of(request)
    numbers = trials_of(pairs)
    trials = [view.trial(number) for number in numbers]
    running = _running(trials)
    if len(trials) < 2 or running or any(name == "choose" for name, _ in pairs):
        return render_page(
            request,
            "compare.html.j2",
            title="Compare",
            asked=", ".join(map(str, numbers)),
            warnings=view.snapshot().warnings,
            running=[trial.number for trial in running],
            enough=len(trials) > 1,
        )
    try:
        html = view.comparison(trials).html
    except NotReady as error:
        return not_ready(request, "The comparison", error)
    query = urlencode({"trials": ",".join(map(str, numbers))}, safe=",")
    links = {"All trials": "/", "Other trials": f"/compare?{query}&choose="}
    downloads = {"JSON": f"/compare/report.json?{query}", "Markdown": f"/compare/report.md?{query}"}
    return report(request, html, links, downloads)


def as_json(view: StoreView, request: Request) -> Response:
    """``/compare/report.json``"""
    return _saved(view, request, "json")


def as_markdown(view: StoreView, request: Request) -> Response:
    """``/compare/report.md``"""
    return _saved(view, request, "md")


def _saved(view: StoreView, request: Request, suffix: str) -> Response:
    numbers = trials_of(pairs_of(request))
    trials = [view.trial(number) for number in numbers]
    if len(trials) < 2 or _running(trials):
        raise RequestError("a comparison needs two or more finished trials")
    name = f"compare-{'-'.join(map(str, numbers))}.{suffix}"
    try:
        found = view.comparison(trials)
    except NotReady as error:
        return not_ready(request, "The comparison", error, download=True)
    if suffix == "json":
        return download(found.json, "application/json", name)
    return download(found.markdown, "text/markdown", name)


def _running(trials: Sequence[Outline]) -> list[Outline]:
    return [trial for trial in trials if trial.state is TrialState.RUNNING]
