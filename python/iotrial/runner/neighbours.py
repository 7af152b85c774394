"""Runs the work of a run while its neighbour works, each in its own control group if a knob sets one of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from iotrial.errors import KnobError, ProbeError, TargetError
from iotrial.knobs.cgroup import join
from iotrial.knobs.knob import RunContext
from iotrial.runner.work_server import Serving
from iotrial.study import neighbour
from iotrial.study.model import Workload
from iotrial.study.neighbour import NAME, Neighbour
from iotrial.study.work import LabContext
from iotrial.workloads.served import own_folder


def done_beside(
    context: RunContext,
    workload: Workload,
    serving: Serving,
    arguments: Mapping[str, str],
    call: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """Return the answer of ``call``, with what the neighbour did in the key ``neighbour`` if the workload has one.

    ``arguments``: the values of placeholders. Raises LabError if the neighbour cannot be started, KnobError if a control
    group cannot be joined.
    """
    groups, wanted = context.work.groups, workload.neighbour
    if wanted is None and groups is None:
        return call()
    lab = serving.lab_context(context)
    try:
        if wanted is not None:
            lab.target.call("mkdir", path=lab.own, mode="0755")
            own_folder(lab, neighbour.folder(lab))
            if groups is not None:
                join(context, groups.neighbour)
            serving.begin(context.worker, wanted.server(lab, arguments))
            time.sleep(wanted.lead_in_s)
        if groups is not None:
            join(context, groups.work)
        answer = call()
        if wanted is not None:
            answer = _ended(context, serving, wanted, lab, answer)
    except BaseException:
        if groups is not None:
            with suppress(KnobError, ProbeError, TargetError):  # the probe may be dead
                join(context, groups.home)
        raise
    if groups is not None:
        join(context, groups.home)
    return answer


def _ended(
    context: RunContext, serving: Serving, wanted: Neighbour, lab: LabContext, answer: dict[str, Any]
) -> dict[str, Any]:
    """Return the answer with the neighbour's, which is stopped here; what it leaves is removed, so that the next run does
    not write it back."""
    once = wanted.rounds == "once"
    serving.forget(NAME)
    done = context.worker.call("server_stop", name=NAME, after_round=once, timeout_s=wanted.timeout_s)
    lab.target.call("remove", path=neighbour.folder(lab), recursive=True)
    for place in (context.place, *context.extra_places.values()):
        place.syncfs()
    answer = {**answer, NAME: done}
    if not answer.get("failures") and (done["died"] or (once and not done["rounds_ns"])):
        how = {key: done[key] for key in ("exit", "signal", "stderr")}
        failure = {"argv0": f"neighbour {wanted.argv[0]}", "timed_out": not done["died"], **how}
        answer["failures"] = [failure]
    return answer
