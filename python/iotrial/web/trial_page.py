"""One trial: its report below a navigation bar, or its progress while it runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from iotrial.errors import RequestError
from iotrial.report.analysed import Analysed
from iotrial.report.conditions import Conditions
from iotrial.report.interactions import comparison, verdict_word
from iotrial.report.interval_charts import IntervalRow
from iotrial.report.live import outlook_words, widest
from iotrial.report.phrases import interval, interval_title
from iotrial.report.progress import Progress, progress_path, read_progress
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState
from iotrial.study.model import Scale
from iotrial.terminal import escape
from iotrial.web.figures import intervals, tone_ink, windows_over_time
from iotrial.web.jobs import NotReady
from iotrial.web.pages import QUIET_REFRESH_S, REFRESH_S, download, not_ready, render_page, report
from iotrial.web.query_params import number_of, pairs_of, value_of
from iotrial.web.store_view import StoreView

MOST_DRAWN = 40
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


def page(view: StoreView, request: Request) -> Response:
    """``/trials/N``"""
    trial = _trial(view, request)
    if trial.state is TrialState.RUNNING:
        return _live(view, request, trial)
    try:
        html = view.reports(trial).html
    except NotReady as error:
        found = view.stored([trial]).get(trial.number) if error.measuring else None
        if found is not None:
            return _stored(view, request, trial, found)
        return not_ready(request, f"Trial {trial.number}", error)
    here = f"/trials/{trial.number}"
    links = {
        "All trials": "/",
        "Compare": f"/compare?trials={trial.number}",
        "History": "/history?" + urlencode({"study": escape(trial.study)}),
    }
    downloads = {
        "packed trial": f"{here}/trial.iotrial",
        "JSON": f"{here}/report.json",
        "Markdown": f"{here}/report.md",
    }
    return report(request, html, links, downloads)


def _stored(view: StoreView, request: Request, trial: Outline, found: Analysed) -> Response:
    """Return the stored answer and effects: while a trial runs, no report is drawn."""
    study = view.header(trial).study
    conditions = Conditions(study)
    rows = [
        {
            "condition": "all" if one.kind == "pooled" else conditions.of_effect(one).text,
            "comparison": comparison(one, study),
            "numbers": interval(one),
            "blocks": one.blocks,
            "word": verdict_word(one),
            "tone": "mixed" if found.risks.get(one.factor, {}).get(one.level) else one.conclusion.tone,
        }
        for one in found.effects
    ]
    return render_page(
        request,
        "stored.html.j2",
        title=f"Trial {trial.number}",
        trial=trial,
        found=found,
        rows=rows,
        heads=interval_title(one.scale for one in found.effects),
        refresh=QUIET_REFRESH_S,
        warnings=view.snapshot().warnings,
    )


def as_json(view: StoreView, request: Request) -> Response:
    """``/trials/N/report.json``"""
    return _saved(view, request, "json", "application/json", lambda trial: view.reports(trial).json)


def as_markdown(view: StoreView, request: Request) -> Response:
    """``/trials/N/report.md``"""
    return _saved(view, request, "md", "text/markdown", lambda trial: view.reports(trial).markdown)


def as_packed(view: StoreView, request: Request) -> Response:
    """``/trials/N/trial.iotrial``"""
    return _saved(view, request, "iotrial", "application/octet-stream", view.packed)


def _saved(
    view: StoreView, request: Request, suffix: str, media_type: str, content: Callable[[Outline], bytes]
) -> Response:
    trial = _trial(view, request)
    if trial.state is TrialState.RUNNING:
        raise RequestError(f"trial {trial.number} is still running")
    try:
        return download(content(trial), media_type, _name(trial, suffix))
    except NotReady as error:
        return not_ready(request, f"Trial {trial.number}", error, download=True)


def _trial(view: StoreView, request: Request) -> Outline:
    return view.trial(number_of(str(request.path_params["number"])))


def _name(trial: Outline, suffix: str) -> str:
    """Return a file name for a download, sanitised: a stored trial may have any name."""
    study = _UNFIT.sub("-", trial.study)[:80].strip("-")
    return f"{trial.number}-{study or 'trial'}.{suffix}"


def _live(view: StoreView, request: Request, trial: Outline) -> Response:
    still = value_of(pairs_of(request), "refresh") == "no"
    path = progress_path(view.path)
    progress = read_progress(path)
    if progress is not None and progress.trial != trial.number:
        progress = None
    age_s = None
    if progress is not None:
        try:
            age_s = max(0.0, time.time() - path.stat().st_mtime)
        except OSError:
            progress = None
    return render_page(
        request,
        "live.html.j2",
        title=f"Trial {trial.number} is running",
        trial=trial,
        study=view.header(trial).study,
        progress=progress,
        age_s=age_s,
        decided=0 if progress is None else progress.decided,
        ahead=[] if progress is None else _ahead(progress),
        figures=[] if progress is None else _figures(progress),
        over_time=None if progress is None else _over_time(progress),
        heads=interval_title((Scale.LOG if line.null else Scale.DIFFERENCE) for line in progress.effects)
        if progress
        else "",
        refresh=None if still else REFRESH_S,
        still=still,
        warnings=view.snapshot().warnings,
    )


def _over_time(progress: Progress) -> tuple[Markup, Markup] | None:
    """Draw the metric in the newest windows of a live trial; None with fewer than two."""
    windows = [one for one in progress.windows if one.value is not None and not one.void]
    if len(windows) < 2:
        return None
    return windows_over_time(
        windows, what=f"The metric in {len(windows)} windows; the table has the numbers."
    )


def _ahead(progress: Progress) -> list[str]:
    """Describe what the trial waits for, what it measures next, and when everything may be decided."""
    parts = list(widest(progress))
    if progress.upcoming:
        parts.append(f"next: {progress.upcoming}")
    if progress.outlook_s is not None:
        parts.append(outlook_words(progress.outlook_s, progress.left_s))
    return parts


def _figures(progress: Progress) -> list[tuple[Markup, Markup]]:
    """Draw the ratios so far, for wide and narrow windows; if there are many, undecided ones first."""
    lines = [line for line in progress.effects if line.null and line.blocks]
    if not lines:
        return []
    if len(lines) > MOST_DRAWN:
        lines = sorted(lines, key=lambda line: line.verdict is not None)[:MOST_DRAWN]
    rows = [
        IntervalRow(
            f"{line.comparison}, {escape(line.condition)}",
            line.low,
            line.value,
            line.high,
            line.numbers,
            line.word,
            tone_ink("" if line.conclusion is None else line.conclusion.tone),
            undecided=line.conclusion is None,
            hollow=line.conclusion is None,
        )
        for line in lines
    ]
    what = f"Intervals of {len(lines)} comparisons after their blocks so far; the table has their numbers."
    return [intervals(rows, margin=progress.margin, what=what)]
