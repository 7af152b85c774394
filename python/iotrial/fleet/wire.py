"""The one form in which an agent writes a batch, and a reader that is quick because it takes no other.

Nearly all of what a coordinator does is reading runs. Here a run is read straight into its type, its limits checked on the
way (those of ``store.packed.records``), and then all that was found is written again: only where that gives the very
text that came is it believed. So nothing that writing would not repeat can hide in it: no unknown or doubled key, no number
in two forms, no value that was changed to fit its type. For every other text ``read`` gives None, and the slow reader, which
takes any JSON and names what is wrong, decides; where both take a text they find the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from iotrial.design.model import ArmKind
from iotrial.errors import StudyError
from iotrial.fleet.values import MAX_DEPTH, check_plain
from iotrial.store.model import BlockEnd, RunRecord
from iotrial.store.packed import records as packed
from iotrial.store.packed.records import PackedRecord, PackedRun, from_value, to_value

RUN, END = "run", "block_end"
_DEPTH = MAX_DEPTH - 3  # of a record's fields: the message, its records and the record are around them
_KINDS = frozenset(kind.value for kind in ArmKind)
_WRONG = (msgspec.MsgspecError, ValueError, TypeError, KeyError, OverflowError, RecursionError, StudyError)

_Word = Annotated[str, Meta(max_length=packed.MAX_LINE_TEXT)]
_Key = Annotated[str, Meta(max_length=packed.MAX_CONDITION)]
_Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Bins = Annotated[
    list[Annotated[list[_Count], Meta(min_length=2, max_length=2)]], Meta(max_length=packed.MAX_BINS)
]


class _Run(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The fields of a run, in the order in which they are written."""

    attempt: Annotated[int, Meta(ge=1, le=packed.MAX_ATTEMPTS)]
    at: Annotated[float, Meta(ge=0.0, le=packed.MAX_UNIX_S)]
    condition: _Key
    block: Annotated[int, Meta(ge=0, le=packed.MAX_BLOCK)]
    slot: Annotated[int, Meta(ge=0, le=packed.MAX_SLOT)]
    arm: _Key
    kind: str
    treatment: Annotated[dict[_Word, _Word], Meta(max_length=64)]
    started_s: Annotated[float, Meta(ge=-packed.MAX_SPAN_S, le=packed.MAX_SPAN_S)]
    failure: Annotated[str, Meta(max_length=packed.MAX_REASON)] | None
    responses: Annotated[
        dict[_Word, Annotated[float, Meta(ge=0.0, le=packed.MAX_VALUE)]], Meta(max_length=packed.MAX_NUMBERS)
    ]
    evidence: Annotated[
        dict[_Word, Annotated[float, Meta(ge=-packed.MAX_VALUE, le=packed.MAX_VALUE)]],
        Meta(max_length=packed.MAX_NUMBERS),
    ]
    histograms: Annotated[dict[_Word, _Bins], Meta(max_length=packed.MAX_HISTOGRAMS)]
    checks: Annotated[dict[_Word, Any], Meta(max_length=packed.MAX_NUMBERS)]
    files: Annotated[list[_Whole], Meta(max_length=packed.MAX_FILES)] | None


class _End(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The fields of the end of a block, in the order in which they are written."""

    condition: _Key
    block: Annotated[int, Meta(ge=0, le=packed.MAX_BLOCK)]
    round: Annotated[int, Meta(ge=0, le=2 * packed.MAX_BLOCK)]
    controls: bool
    void: _Word | None
    void_level: _Key | None
    gap: bool


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """A batch; ``records`` are pairs of a kind and its fields."""

    since: Any
    stage: Any
    records: list[Any]
    more: Any
    problem: Any
    left: Any


class _Opened(_Message, forbid_unknown_fields=True):
    """A batch whose records are not read yet."""

    records: list[tuple[str, msgspec.Raw]]


_message = msgspec.json.Decoder(_Opened)
_run = msgspec.json.Decoder(_Run)
_end = msgspec.json.Decoder(_End)
_other = msgspec.json.Decoder(Any)
_encoder = msgspec.json.Encoder()


def written(envelope: Mapping[str, Any], records: Sequence[PackedRecord]) -> str:
    """The text of a batch. ``envelope``: all but its records. ValueError for a number that is not finite."""
    return _encoder.encode(_Message(records=[_fields(record) for record in records], **envelope)).decode()


def read(text: str, *, most: int) -> tuple[dict[str, Any], list[PackedRecord]] | None:
    """The envelope of a batch, of values that have yet to be looked at, and its records, which are checked; at most ``most``
    of them. None where the text is not such a one, or not of the form of ``written``."""
    try:
        data = text.encode()
        message = _message.decode(data)
        if len(message.records) > most:
            return None
        found: list[PackedRecord] = []
        again: list[tuple[str, Any]] = []
        for kind, raw in message.records:
            fields: Any
            if kind == RUN:
                fields = _run.decode(raw)
                found.append(_packed(fields))
            elif kind == END:
                one = fields = _end.decode(raw)
                found.append(
                    BlockEnd(
                        one.condition, one.block, one.round, one.controls, one.void, one.void_level, one.gap
                    )
                )
            else:
                fields = _other.decode(raw)
                check_plain(fields, _DEPTH)
                found.append(from_value(kind, fields, "a host"))
            again.append((kind, fields))
        envelope = {
            "since": message.since,
            "stage": message.stage,
            "more": message.more,
            "problem": message.problem,
            "left": message.left,
        }
        check_plain(envelope, MAX_DEPTH)
        if _encoder.encode(_Message(records=again, **envelope)) != data:
            return None
    except _WRONG:
        return None
    return envelope, found


def _packed(run: _Run) -> PackedRun:
    if run.kind not in _KINDS:
        raise ValueError("no kind of arm is called so")
    if run.checks:
        check_plain(run.checks, _DEPTH - 1)
        packed.check_facts(run.checks, "checks")
    return PackedRun(
        RunRecord(
            condition=run.condition,
            block=run.block,
            slot=run.slot,
            arm=run.arm,
            kind=run.kind,
            treatment=run.treatment,
            started_s=run.started_s,
            failure=run.failure,
            responses=run.responses,
            evidence=run.evidence,
            histograms=run.histograms,
            checks=run.checks,
            files=None if run.files is None else tuple(run.files),
        ),
        run.attempt,
        run.at,
    )


def _fields(record: PackedRecord) -> tuple[str, Any]:
    """A record's kind and fields. Measured numbers become floats, as they are for whoever reads them."""
    kind, fields = to_value(record)
    check_plain(fields, _DEPTH)
    if kind != RUN:
        return kind, fields
    for name in ("at", "started_s"):
        fields[name] = float(fields[name])
    for name in ("responses", "evidence"):
        fields[name] = {key: float(value) for key, value in fields[name].items()}
    return kind, fields
