"""The list of trials: newest first, filtered by a form, paginated; only the current page's trials are analysed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from iotrial.report.analysed import Analysed
from iotrial.report.notation import day_and_time, elided
from iotrial.store.outline import Outline
from iotrial.store.states import TrialState
from iotrial.terminal import escape
from iotrial.units import format_bytes
from iotrial.web.pages import render_page
from iotrial.web.query_params import Search, holds, pairs_of
from iotrial.web.store_view import StoreView

PAGE_SIZE = 50
LONGEST_LAB, LONGEST_FACT = 40, 60
WAIT_S = 0.05  # for trials of the page that have not been analysed yet


@dataclass(frozen=True, slots=True)
class Row:
    """A trial in the list. ``summary``: None if it has not been analysed yet."""

    trial: Outline
    started: str
    study: str
    machine: str
    kernel: str
    lab: str
    summary: Analysed | None


def page(view: StoreView, request: Request) -> Response:
    """``/``"""
    search = Search.of(pairs_of(request))
    snapshot = view.snapshot()
    found = [trial for trial in snapshot.trials if _fits(trial, search)]
    unsearched = 0
    if search.verdict:
        known = view.stored(found)
        unsearched = sum(one.number not in known and one.state is not TrialState.RUNNING for one in found)
        found = [one for one in found if one.number in known and _says(known[one.number], search.verdict)]
    pages = max(1, -(-len(found) // PAGE_SIZE))
    number = min(search.page, pages)
    of_page = found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
    summaries = view.stored(of_page) if snapshot.running else view.summaries(of_page, wait_s=WAIT_S).found
    rows = [row_of(trial, summaries.get(trial.number)) for trial in of_page]
    return render_page(
        request,
        "list.html.j2",
        title="Trials",
        search=search,
        rows=rows,
        count=len(found),
        every=len(snapshot.trials),
        damaged=[] if search.narrows or number > 1 else snapshot.damaged,
        running=snapshot.running,
        missing=snapshot.missing,
        unsearched=unsearched,
        unseen=sum(row.summary is None and row.trial.state is not TrialState.RUNNING for row in rows),
        number=number,
        pages=pages,
        earlier=search.address(number - 1) if number > 1 else None,
        later=search.address(number + 1) if number < pages else None,
        states=list(TrialState),
        store=str(view.path),
        warnings=snapshot.warnings,
    )


def row_of(trial: Outline, summary: Analysed | None) -> Row:
    """Return a trial's row in the list."""
    return Row(
        trial=trial,
        started=day_and_time(trial.started),
        study=escape(trial.study),
        machine=machine_of(trial.host),
        kernel=kernel_of(trial.host),
        lab=elided(escape(trial.lab), LONGEST_LAB),
        summary=summary,
    )


def machine_of(host: Mapping[str, object]) -> str:
    """For example "AMD EPYC × 2, 24 GiB, Debian GNU/Linux 12 (bookworm)"; without the kernel, which changes."""
    processor, count = _fact(host, "processor"), host.get("processors")
    parts = [f"{processor} × {count}" if processor and isinstance(count, int) else processor]
    memory = host.get("memory_bytes")
    if isinstance(memory, int | float) and 0 < memory < 2**60:
        whole = round(memory / (1 << 30)) * (
            1 << 30
        )  # the kernel reserves some memory, not always the same amount
        parts.append(format_bytes(whole or memory))
    parts.append(_fact(host, "system"))
    return ", ".join(part for part in parts if part) or "not known"


def kernel_of(host: Mapping[str, object]) -> str:
    """Return the kernel's version, "" if unknown."""
    return _fact(host, "kernel")


def _fact(facts: Mapping[str, object], name: str) -> str:
    value = facts.get(name)
    return elided(escape(value), LONGEST_FACT) if isinstance(value, str) else ""


def _fits(trial: Outline, search: Search) -> bool:
    if search.state and trial.state != search.state:
        return False
    day = day_and_time(trial.started)[:10]
    if (search.since and day < search.since) or (search.until and day > search.until):
        return False
    return (
        holds(search.study, (escape(trial.study), escape(trial.title)))
        and holds(search.kernel, (kernel_of(trial.host),))
        and holds(search.machine, _machine_texts(trial))
    )


def _machine_texts(trial: Outline) -> Sequence[str]:
    facts = (escape(value) for value in trial.host.values() if isinstance(value, str | int))
    return (machine_of(trial.host), escape(trial.lab), *facts)


def _says(summary: Analysed, wanted: str) -> bool:
    return holds(wanted, (escape(summary.headline), summary.tone))
