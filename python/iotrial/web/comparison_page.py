"""Compare several trials: the page that ``iotrial compare --html`` writes, and the form that leads to it."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from iotrial.errors import RequestError
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState
from iotrial.web.jobs import NotReady
from iotrial.web.pages import download, not_ready, render_page, report
from iotrial.web.query_params import pairs_of, trials_of
from iotrial.web.store_view import StoreView


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
