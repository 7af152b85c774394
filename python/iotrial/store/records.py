"""Rows of the store and the frozen values that they stand for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from iotrial.analysis.model import Observation, ObservedBlock
from iotrial.design.model import ArmKind
from iotrial.errors import StoreError
from iotrial.store.model import BlockEnd, RunRecord, TrialHeader
from iotrial.study.codec import study_from_json, study_to_json

HEADER_COLUMNS = "id, study, seed, seed_chosen, alpha, margin, started, lab, host, options, version"
RUN_COLUMNS = (
    "condition, block, slot, arm, kind, treatment, started_s, failure, responses, evidence, histograms, checks, "
    "files"
)
END_COLUMNS = "condition, block, round, controls, void, void_level, gap"

Row = tuple[Any, ...]


def header_row(header: TrialHeader) -> Row:
    """The columns of ``HEADER_COLUMNS``."""
    return (
        header.id,
        to_json(study_to_json(header.study)),
        header.seed,
        int(header.seed_chosen),
        header.alpha,
        header.margin,
        header.started,
        to_json(header.lab),
        to_json(header.host),
        to_json(header.options),
        header.version,
    )


def header_of(row: Row) -> TrialHeader:
    """The header in the columns of ``HEADER_COLUMNS``."""
    trial_id, study, seed, seed_chosen, alpha, margin, started, lab, host, options, version = row
    return TrialHeader(
        id=trial_id,
        study=study_from_json(_from_json(study), origin=f"trial {trial_id}"),
        seed=seed,
        seed_chosen=bool(seed_chosen),
        alpha=alpha,
        margin=margin,
        started=started,
        lab=_from_json(lab),
        host=_from_json(host),
        options=_from_json(options),
        version=version,
    )


def run_row(run: RunRecord) -> Row:
    """The columns of ``RUN_COLUMNS``; StoreError where a number is not finite."""
    return (
        run.condition,
        run.block,
        run.slot,
        run.arm,
        run.kind,
        to_json(run.treatment),
        run.started_s,
        run.failure,
        to_json(run.responses),
        to_json(run.evidence),
        to_json(run.histograms),
        to_json(run.checks),
        None if run.files is None else to_json(run.files),
    )


def run_of(row: Row) -> RunRecord:
    """The run in the columns of ``RUN_COLUMNS``."""
    condition, block, slot, arm, kind, treatment, started_s, failure, *texts, files = row
    responses, evidence, histograms, checks = (_from_json(text) for text in texts)
    return RunRecord(
        condition=condition,
        block=block,
        slot=slot,
        arm=arm,
        kind=kind,
        treatment=_from_json(treatment),
        started_s=started_s,
        failure=failure,
        responses=responses,
        evidence=evidence,
        histograms=histograms,
        checks=checks,
        files=None if files is None else tuple(_from_json(files)),
    )


def end_row(end: BlockEnd) -> Row:
    """The columns of ``END_COLUMNS``."""
    return (end.condition, end.block, end.round, int(end.controls), end.void, end.void_level, int(end.gap))


def end_of(row: Row) -> BlockEnd:
    """The end of a block in the columns of ``END_COLUMNS``."""
    condition, block, number, controls, void, void_level, gap = row
    return BlockEnd(condition, block, number, bool(controls), void, void_level, bool(gap))


def observed(end: BlockEnd, runs: Iterable[RunRecord]) -> ObservedBlock:
    """A complete block as analysis takes it: its runs in the order they were made."""
    return ObservedBlock(
        condition=end.condition,
        index=end.block,
        observations=tuple(
            Observation(
                arm=run.arm,
                kind=ArmKind(run.kind),
                treatment=run.treatment,
                slot=run.slot,
                started_s=run.started_s,
                responses=run.responses,
                failure=run.failure,
            )
            for run in runs
        ),
        void=end.void,
        void_level=end.void_level,
        gap=end.gap,
    )


def to_json(value: object) -> str:
    """Compact JSON; StoreError for what JSON cannot hold, such as a response that is not a number."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError) as error:
        raise StoreError(f"cannot be stored: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise StoreError(f"holds a damaged record: {error}") from error
