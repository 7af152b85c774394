"""Run a trial of a study that is chosen and resolved: the common part of ``run`` and ``try``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from iotrial.cli.consent import seek_consent
from iotrial.cli.finish import Outputs, conclude
from iotrial.cli.live_view import watcher_for
from iotrial.cli.run_request import RunRequest, resolve_study
from iotrial.paths import store_path
from iotrial.runner.planning import default_folder, make_plan
from iotrial.runner.start import Ended, Engine, begin
from iotrial.runner.trial import Limits
from iotrial.store import Store
from iotrial.study.select import with_levels

if TYPE_CHECKING:
    from iotrial.study.model import Study

#: seconds that the program takes to start and to report, without and with a page of figures
REPORT_S, PAGE_S = 1.5, 4.5


def run_trial(
    study: Study,
    request: RunRequest,
    outputs: Outputs,
    *,
    sample_s: float | None = None,
    options: Mapping[str, object] = MappingProxyType({}),
) -> int:
    """Run a trial, report it, and return the exit status. ``options`` as in ``carry_out``.

    Raises RequestError and its kin before anything is changed.
    """
    store, ended = carry_out(
        study, request, quiet=outputs.as_json, page=outputs.page, sample_s=sample_s, options=options
    )
    while ended.fewer is not None:
        labels, left_s = ended.fewer
        study = with_levels(study, labels, time_s=left_s)
        store, ended = carry_out(study, request, quiet=outputs.as_json, agreed=True)
    return conclude(store, ended, outputs)


def carry_out(
    study: Study,
    request: RunRequest,
    *,
    quiet: bool,
    agreed: bool = False,
    page: bool = False,
    sample_s: float | None = None,
    options: Mapping[str, object] = MappingProxyType({}),
) -> tuple[Store, Ended]:
    """Run a trial to its end. ``options`` are added to those in its header. ``agreed``: the user has seen what it changes.
    ``page``: its report has a page with figures.

    Raises RequestError and its kin before anything is changed.
    """
    resolved = resolve_study(study, request)
    sample_s = sample_s or study.sample_s
    plan = make_plan(resolved, request.seed, controls=request.controls)
    budget = resolved.study.budget
    engine = engine_of(resolved.study)
    limits = Limits(
        budget.time_s,
        budget.blocks,
        stop_when_decided=not request.no_stop,
        report_s=None if engine is not None else PAGE_S if page else REPORT_S,
        fewer=request.fewer,
    )
    folder = default_folder(resolved, request.on)
    if not agreed:
        seek_consent(resolved, folder, trust=request.trust, yes=request.yes)
    store = Store.open(store_path())
    with watcher_for(plan, quiet=quiet, store=store.path) as watcher:
        ended = begin(
            resolved,
            plan,
            store,
            limits,
            watcher,
            engine=engine,
            folder=folder,
            seed_chosen=request.seed is not None,
            options={
                "argv": ["iotrial", *sys.argv[1:]],
                "time_s": budget.time_s,
                "blocks": budget.blocks,
                "no_stop": request.no_stop,
                "precise": request.precise,
                "controls": plan.controls,
                "asked": list(request.named),
                **({} if resolved.study.trusted else {"consented": True}),
                **({} if sample_s is None else {"sample_s": sample_s}),
                **options,
            },
        )
    return store, ended


def engine_of(study: Study) -> Engine | None:
    """Return what carries out a study on a machine in use (``iotrial live``); None for one in a lab."""
    if not study.in_windows:
        return None
    # the sources of metrics would slow down the start of every other trial
    from iotrial.live.conductor import LIVE

    return LIVE
