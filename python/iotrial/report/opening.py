"""Open a stored or packed trial as its document or summary. Needs neither root nor the probe, and changes no store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from iotrial.design.plan import Plan
from iotrial.paths import store_path
from iotrial.report.analysed import Analysed, analysed
from iotrial.report.analyses import Analyses, Key
from iotrial.report.document import Document, build_document
from iotrial.stats.analyse import Spec, analyse
from iotrial.stats.model import Analysis, FinalAnalysis
from iotrial.store import Store
from iotrial.store.loading import keeping_all, unpacked
from iotrial.store.model import TrialData, TrialHeader, TrialState
from iotrial.store.not_tried import without_not_tried
from iotrial.store.packed import open_packed, read_packed
from iotrial.store.packed.consistency import check_stored
from iotrial.terminal import escape

#: called with the number of blocks before a trial is analysed, which takes a while for a long one
OnAnalysis = Callable[[int], None]


def document_of(
    store: Store,
    ref: str | int,
    *,
    on_analysis: OnAnalysis | None = None,
    final: FinalAnalysis | None = None,
) -> Document:
    """Return a stored trial with its analysis. StoreError if its records are damaged, UnknownName if it does not exist.

    ``final``: its analysis when it ended, which is used if it is of the blocks that are stored.
    """
    with keeping_all(), Analyses(store.path) as stored:
        data, key = _read(store, ref, stored)
        return _document(data, key, stored, on_analysis, final)


def packed_document(path: Path, *, on_analysis: OnAnalysis | None = None) -> Document:
    """Return a packed trial with its analysis, without storing the trial. Raises PackedError if the file is not one."""
    with keeping_all(), Analyses(store_path()) as stored:
        data, key = _read_packed(path)
        return _document(data, key, stored, on_analysis)


def summary_of(store: Store, ref: str | int, *, share: int = 1) -> Analysed:
    """Return the summary of a stored trial at its alpha divided by ``share``. Raises what ``document_of`` raises."""
    with keeping_all(), Analyses(store.path) as stored:
        data, key = _read(store, ref, stored)
        return _summary(data, key, stored, share)


def packed_summary(path: Path, *, share: int = 1) -> Analysed:
    """Return the summary of a packed trial. Raises PackedError if the file is not one."""
    with keeping_all(), Analyses(store_path()) as stored:
        data, key = _read_packed(path)
        return _summary(data, key, stored, share)


def spec_of(header: TrialHeader, *, alpha: float | None = None) -> Spec:
    """Return the comparisons of a trial, at its own level unless ``alpha`` is given."""
    plan = Plan.stored(header.study, header.seed, header.options)
    alpha = header.alpha if alpha is None else alpha
    return Spec.from_plan(plan, header.options, alpha=alpha, margin=header.margin)


def _read(store: Store, ref: str | int, stored: Analyses) -> tuple[TrialData, Key | None]:
    """Read and check a trial; also return the key of its analysis, None while the trial runs.

    Rows of which an analysis is stored have been checked against the plan before.
    """
    number = store.find(ref).number
    mark = store.mark(
        number
    )  # before the rows: if something is added meanwhile, the analysis is found by its rows only
    data, digest = store.data_and_digest(number)
    trial = data.trial
    key = None
    if trial.state is not TrialState.RUNNING:
        seen = repr((digest, trial.number, trial.state.value, trial.reason, trial.duration_s))
        key = Key(trial.header.id, seen.encode(), mark)
    if key is None or not stored.has(key):
        check_stored(data)
    return data, key


def _read_packed(path: Path) -> tuple[TrialData, Key]:
    """Read a packed trial; also return the key of its analysis: its id and the digest of the file's content."""
    with open_packed(path) as file:
        data = unpacked(read_packed(file, escape(path)), source=escape(path.name))
    return data, Key(data.trial.header.id, str(data.trial.imported).encode())


def _document(
    data: TrialData,
    key: Key | None,
    stored: Analyses,
    on_analysis: OnAnalysis | None = None,
    final: FinalAnalysis | None = None,
) -> Document:
    found = None if key is None else stored.analysis(key)
    if found is not None:
        return build_document(data, found)
    if final is not None and (final.blocks, final.unused) == (data.blocks, data.unused):
        # remarks only precede the notes
        analysis = replace(final.analysis, notes=(*data.remarks, *final.analysis.notes))
        analysis = without_not_tried(data, analysis)
    else:
        if on_analysis is not None:
            on_analysis(len(data.ends))
        analysis = _analysis(data)
    document = build_document(data, analysis)
    if key is not None:
        stored.store(key, document.analysis, analysed(document))
    return document


def _summary(data: TrialData, key: Key | None, stored: Analyses, share: int) -> Analysed:
    found = None if key is None else stored.summary(key, share=share)
    if found is not None:
        return found
    document = _document(data, key, stored)
    analysis = document.analysis if share == 1 else _analysis(data, share)
    summary = analysed(document, analysis, share=share)
    if key is not None:
        stored.store(key, analysis, summary, share=share)
    return summary


def _analysis(data: TrialData, share: int = 1) -> Analysis:
    header = data.trial.header
    spec = spec_of(header, alpha=header.alpha / share)
    return without_not_tried(data, analyse(spec, data.blocks, unused=data.unused, remarks=data.remarks))
