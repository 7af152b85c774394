"""One trial: its report with a bar of downloads above it, or, while it runs, how it stands."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from iotrial.errors import RequestError
from iotrial.legible import shown
from iotrial.report.live import outlook_words, widest
from iotrial.report.phrases import interval_title
from iotrial.report.progress import read_standing, standing_path
from iotrial.serve.asked import number_of, pairs_of, value_of
from iotrial.serve.desk import Unmade
from iotrial.serve.drawing import NARROW, WIDE, Axis, Mark, forest
from iotrial.serve.dressing import REFRESH_S, dressed, later
from iotrial.serve.rendering import page as rendered
from iotrial.serve.reply import Reply, download
from iotrial.serve.site import Site
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState
from iotrial.study.model import Scale

if TYPE_CHECKING:
    from markupsafe import Markup
    from starlette.requests import Request

    from iotrial.report.progress import EffectLine, Progress

MOST_DRAWN = 40
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_BODY = re.compile(r"<body\b[^>]*>")
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
_QUIET = "A trial is running, and analysing another beside it would disturb it. This page goes on when it has ended."


def page(site: Site, request: Request) -> Reply:
    """``/trials/N``"""
    trial = _trial(site, request)
    if trial.state is TrialState.RUNNING:
        still = value_of(pairs_of(request.scope["query_string"]), "refresh") == "no"
        return _live(site, trial, still=still)
    try:
        made = site.made(trial)
    except Unmade as unmade:
        return later(f"Trial {trial.number}", measuring=unmade.measuring)
    here = f"/trials/{trial.number}"
    return dressed(
        made.html,
        links=[
            ("All trials", "/"),
            ("Compare", f"/compare?trials={trial.number}"),
            ("History", "/history?" + urlencode({"study": shown(trial.study)})),
        ],
        files=[
            ("packed trial", f"{here}/trial.iotrial"),
            ("JSON", f"{here}/report.json"),
            ("Markdown", f"{here}/report.md"),
        ],
    )


def as_json(site: Site, request: Request) -> Reply:
    """``/trials/N/report.json``"""
    return _saved(site, request, "json", "application/json", lambda trial: site.made(trial).json)


def as_markdown(site: Site, request: Request) -> Reply:
    """``/trials/N/report.md``"""
    return _saved(site, request, "md", "text/markdown", lambda trial: site.made(trial).markdown)


def as_packed(site: Site, request: Request) -> Reply:
    """``/trials/N/trial.iotrial``"""
    return _saved(site, request, "iotrial", "application/octet-stream", site.packed)


def _saved(site: Site, request: Request, suffix: str, kind: str, make: Callable[[Outline], bytes]) -> Reply:
    trial = _trial(site, request)
    if trial.state is TrialState.RUNNING:
        raise RequestError(
            f"trial {trial.number} is still running", hint="it can be downloaded when it has ended"
        )
    try:
        return download(make(trial), kind, _name(trial, suffix))
    except Unmade as unmade:
        return later(f"Trial {trial.number}", measuring=unmade.measuring, saved=True)


def _trial(site: Site, request: Request) -> Outline:
    return site.trial(number_of(str(request.path_params["number"])), site.view())


def _name(trial: Outline, suffix: str) -> str:
    """Of a file to be saved: a stored trial may bear any name."""
    study = _UNFIT.sub("-", trial.study)[:80].strip("-")
    return f"{trial.number}-{study or 'trial'}.{suffix}"


def _live(site: Site, trial: Outline, *, still: bool) -> Reply:
    path = standing_path(site.shelf.path)
    progress = read_standing(path)
    if progress is not None and progress.trial != trial.number:
        progress = None
    age_s = None
    if progress is not None:
        try:
            age_s = max(0.0, time.time() - path.stat().st_mtime)
        except OSError:
            progress = None
    return Reply(
        rendered(
            "live.html.j2",
            title=f"Trial {trial.number} is running",
            trial=trial,
            study=site.header(trial).study,
            progress=progress,
            age_s=age_s,
            decided=0 if progress is None else progress.decided,
            ahead=[] if progress is None else _ahead(progress),
            figures=[] if progress is None else _figures(progress),
            heads=interval_title(_scale(line) for line in progress.effects) if progress else "",
            refresh=None if still else REFRESH_S,
            still=still,
            warnings=site.view().warnings,
        )
    )


def _ahead(progress: Progress) -> list[str]:
    """What the trial waits for, what it measures next, and when all may be decided."""
    said = list(widest(progress))
    if progress.upcoming:
        said.append(f"next: {progress.upcoming}")
    if progress.outlook_s is not None:
        said.append(outlook_words(progress.outlook_s, progress.left_s))
    return said


def _scale(line: EffectLine) -> Scale:
    return Scale.LOG if line.null else Scale.DIFFERENCE


def _figures(progress: Progress) -> list[tuple[Markup, Markup]]:
    """The ratios as they stand, wide and narrow; undecided ones first where there are many."""
    lines = [line for line in progress.effects if line.null and line.blocks]
    if not lines:
        return []
    if len(lines) > MOST_DRAWN:
        lines = sorted(lines, key=lambda line: line.verdict is not None)[:MOST_DRAWN]
    groups: dict[str, list[Mark]] = {}
    for line in lines:
        tone = "" if line.conclusion is None else line.conclusion.tone
        mark = Mark(line.value, line.low, line.high, tone, "", line.numbers, word=line.word)
        groups.setdefault(f"{line.comparison}, {line.condition}", []).append(mark)
    every = [mark for marks in groups.values() for mark in marks]
    axis = Axis.of(every, log=True, margin=progress.margin)
    said = f"Intervals of {len(lines)} comparisons after their blocks so far; the table has their numbers."

    def drawn(width: int) -> Markup:
        return forest(list(groups.items()), axis, unit="", margin=progress.margin, width=width, said=said)

    return [(drawn(WIDE), drawn(NARROW))]
