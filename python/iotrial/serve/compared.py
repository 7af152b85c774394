"""Several trials side by side: the page that ``iotrial compare --html`` writes, and the form that leads to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from iotrial.errors import RequestError
from iotrial.serve.asked import pairs_of, trials_of
from iotrial.serve.desk import Unmade
from iotrial.serve.dressing import QUIET_REFRESH_S, REFRESH_S, dressed, later
from iotrial.serve.making import Made
from iotrial.serve.rendering import page as rendered
from iotrial.serve.reply import Reply, download
from iotrial.serve.site import Looked, Site
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState

if TYPE_CHECKING:
    from starlette.requests import Request


def page(site: Site, request: Request) -> Reply:
    """``/compare?trials=1,2``; with ``choose`` the form, whatever is named."""
    pairs = pairs_of(request.scope["query_string"])
    numbers = trials_of(pairs)
    view = site.view()
    trials = [site.trial(number, view) for number in numbers]
    if len(trials) < 2 or _running(trials) or any(name == "choose" for name, _ in pairs):
        return _form(site, trials, None)
    looked = site.looked(trials, share=len(trials))
    if looked.open or looked.failed:
        return _form(site, trials, looked)
    try:
        made = site.compared(trials, looked)
    except Unmade as unmade:
        return later("The comparison", measuring=unmade.measuring)
    asked = urlencode({"trials": ",".join(map(str, numbers))}, safe=",")
    return dressed(
        made.html,
        links=[("All trials", "/"), ("Other trials", f"/compare?{asked}&choose=")],
        files=[("JSON", f"/compare/report.json?{asked}"), ("Markdown", f"/compare/report.md?{asked}")],
    )


def as_json(site: Site, request: Request) -> Reply:
    """``/compare/report.json``"""
    return _saved(site, request, "json", "application/json", lambda made: made.json)


def as_markdown(site: Site, request: Request) -> Reply:
    """``/compare/report.md``"""
    return _saved(site, request, "md", "text/markdown", lambda made: made.markdown)


def _saved(site: Site, request: Request, suffix: str, kind: str, part: Callable[[Made], bytes]) -> Reply:
    numbers = trials_of(pairs_of(request.scope["query_string"]))
    view = site.view()
    trials = [site.trial(number, view) for number in numbers]
    if len(trials) < 2 or _running(trials):
        raise RequestError("a comparison is of two or more trials that have ended")
    looked = site.looked(trials, share=len(trials))
    if looked.failed:
        raise RequestError(next(iter(looked.failed.values())))
    try:
        if looked.open:
            raise Unmade(measuring=looked.measuring)
        return download(
            part(site.compared(trials, looked)), kind, f"compare-{'-'.join(map(str, numbers))}.{suffix}"
        )
    except Unmade as unmade:
        return later("The comparison", measuring=unmade.measuring, saved=True)


def _form(site: Site, trials: list[Outline], looked: Looked | None) -> Reply:
    refresh = None
    if looked is not None and looked.open:
        refresh = QUIET_REFRESH_S if looked.measuring else REFRESH_S
    return Reply(
        rendered(
            "compare.html.j2",
            title="Compare",
            asked=", ".join(str(trial.number) for trial in trials),
            warnings=site.view().warnings,
            running=[trial.number for trial in _running(trials)],
            enough=len(trials) > 1,
            looked=looked,
            refresh=refresh,
        )
    )


def _running(trials: list[Outline]) -> list[Outline]:
    return [trial for trial in trials if trial.state is TrialState.RUNNING]
