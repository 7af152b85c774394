"""The list of trials: newest first, narrowed by a form, a page at a time; only the page's own trials are looked into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iotrial.legible import shown
from iotrial.report.notation import day_and_time, elided
from iotrial.serve.asked import Search, holds, pairs_of
from iotrial.serve.machines import kernel_of, machine_of
from iotrial.serve.rendering import page as rendered
from iotrial.serve.reply import Reply
from iotrial.serve.site import Said, Site
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState

if TYPE_CHECKING:
    from starlette.requests import Request

PAGE_SIZE = 50
LONGEST_LAB = 40
LOOK_S = 0.05  # for what a page's trials say and nobody has asked yet


@dataclass(frozen=True, slots=True)
class Row:
    """A trial in the list."""

    trial: Outline
    started: str
    study: str
    machine: str
    kernel: str
    lab: str
    said: Said | None


def page(site: Site, request: Request) -> Reply:
    """``/``"""
    search = Search.of(pairs_of(request.scope["query_string"]))
    view = site.view()
    found = [trial for trial in view.trials if _fits(trial, search)]
    unsearched = 0
    if search.verdict:
        said = site.said(found)
        unsearched = sum(one.number not in said for one in found if one.state is not TrialState.RUNNING)
        found = [one for one in found if one.number in said and _says(said[one.number], search.verdict)]
    pages = max(1, -(-len(found) // PAGE_SIZE))
    number = min(search.page, pages)
    of_page = found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
    said = site.said(of_page, wait_s=0.0 if view.running else LOOK_S)
    rows = [row_of(trial, said.get(trial.number)) for trial in of_page]
    return Reply(
        rendered(
            "list.html.j2",
            title="Trials",
            search=search,
            rows=rows,
            count=len(found),
            every=len(view.trials),
            damaged=[] if search.narrows or number > 1 else view.damaged,
            running=view.running,
            missing=view.missing,
            unsearched=unsearched,
            unseen=sum(row.said is None and row.trial.state is not TrialState.RUNNING for row in rows),
            number=number,
            pages=pages,
            earlier=search.address(number - 1) if number > 1 else None,
            later=search.address(number + 1) if number < pages else None,
            states=list(TrialState),
            store=str(site.shelf.path),
            warnings=view.warnings,
        )
    )


def row_of(trial: Outline, said: Said | None) -> Row:
    """What the list shows of a trial."""
    return Row(
        trial=trial,
        started=day_and_time(trial.started),
        study=shown(trial.study),
        machine=machine_of(trial.host),
        kernel=kernel_of(trial.host),
        lab=elided(shown(trial.lab), LONGEST_LAB),
        said=said,
    )


def _fits(trial: Outline, search: Search) -> bool:
    if search.state and trial.state != search.state:
        return False
    day = day_and_time(trial.started)[:10]
    if (search.since and day < search.since) or (search.until and day > search.until):
        return False
    return (
        holds(search.study, (shown(trial.study), shown(trial.title)))
        and holds(search.kernel, (kernel_of(trial.host),))
        and holds(search.machine, _machine_texts(trial))
    )


def _machine_texts(trial: Outline) -> Sequence[str]:
    facts = (shown(value) for value in trial.host.values() if isinstance(value, str | int))
    return (machine_of(trial.host), shown(trial.lab), *facts)


def _says(said: Said, wanted: str) -> bool:
    return holds(wanted, (shown(said.headline), said.tone))
