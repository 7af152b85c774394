"""From a stored or a packed trial to its document. Needs neither root nor the probe, and changes nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from iotrial.analysis.ahead import in_processes
from iotrial.analysis.analyse import Spec, analyse
from iotrial.design.plan import Plan
from iotrial.lab.lock import is_held
from iotrial.legible import shown
from iotrial.report.document import Document, build_document
from iotrial.report.kept_intervals import kept_beside
from iotrial.store import Store
from iotrial.store.collecting import keeping_all
from iotrial.store.model import TrialHeader
from iotrial.store.packed import open_packed, read_packed
from iotrial.store.packed.consistency import check_stored

NOT_STORED = 0  # where a trial's number would be


def document_of(store: Store, ref: str | int, *, processes: int = 1) -> Document:
    """A stored trial, analysed. StoreError where its records are damaged, UnknownName where there is none.

    The intervals of a long one may be sought in several ``processes``.
    """
    with keeping_all(), in_processes(processes):
        data = store.data(ref)
        check_stored(data)
        with kept_beside(store, data):
            analysis = analyse(
                spec_of(data.trial.header), data.blocks, unused=data.unused, remarks=data.remarks
            )
        return build_document(data, analysis)


def packed_document(path: Path, *, processes: int = 1) -> Document:
    """A packed trial, analysed in memory: nothing is stored. PackedError where the file is none."""
    with open_packed(path) as file, Store.in_memory() as store:
        found = read_packed(file, shown(path))
        trial = store.unpack(found, source=shown(path.name))
        document = document_of(store, trial.header.id, processes=processes)
    data = document.data
    return replace(document, data=replace(data, trial=replace(data.trial, number=NOT_STORED)))


def processes_to_spare() -> int:
    """One for each processor that this one may use; only one while a trial, which it would disturb, is running here."""
    return 1 if is_held() else len(os.sched_getaffinity(0))


def spec_of(header: TrialHeader, *, alpha: float | None = None) -> Spec:
    """The comparisons of a trial, at its own level unless another is given."""
    plan = Plan.stored(header.study, header.seed, header.options)
    alpha = header.alpha if alpha is None else alpha
    return Spec.from_plan(plan, header.options, alpha=alpha, margin=header.margin)
