"""Addresses and what answers them: plain functions of the site and the request, each in a thread that may wait."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from iotrial.serve import compared, history, listed, single
from iotrial.serve.gate import Gate
from iotrial.serve.rendering import said_page, style, warm
from iotrial.serve.reply import Reply
from iotrial.serve.site import Site

Page = Callable[[Site, Request], Reply]


def application(store: Path, *, aside: bool) -> Gate:
    """The ASGI application over the store in this file, which need not be there yet. ``aside``: what takes long is done
    when the machine has nothing else to do."""
    site = Site(store, aside=aside)
    routes = [
        Route("/", _answering(site, listed.page)),
        Route("/compare", _answering(site, compared.page)),
        Route("/compare/report.json", _answering(site, compared.as_json)),
        Route("/compare/report.md", _answering(site, compared.as_markdown)),
        Route("/history", _answering(site, history.page)),
        Route("/trials/{number}", _answering(site, single.page)),
        Route("/trials/{number}/report.json", _answering(site, single.as_json)),
        Route("/trials/{number}/report.md", _answering(site, single.as_markdown)),
        Route("/trials/{number}/trial.iotrial", _answering(site, single.as_packed)),
        Route("/style.css", _style),
    ]
    warm()  # while the process has the processor to itself
    return Gate(Router(routes, redirect_slashes=False, default=_nowhere))


def _answering(site: Site, page: Page) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        reply = page(site, request)
        return Response(reply.body, reply.status, reply.headers, media_type=reply.kind)

    return answer


def _style(request: Request) -> Response:
    headers = {"cache-control": "max-age=3600"} if request.url.query else {}
    return Response(style(), headers=headers, media_type="text/css")


async def _nowhere(scope: Any, receive: Any, send: Any) -> None:
    body = said_page("There is no such page", "wanted an address that one of these pages leads to")
    await Response(body, 404, media_type="text/html")(scope, receive, send)
