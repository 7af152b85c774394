"""What power cuts left of an arm's run, as JSON events of a trial, so that packed trials hold them.

An iotrial that does not know these kinds shows them as notes.
"""

from __future__ import annotations

from dataclasses import asdict

import msgspec

from iotrial.errors import StoreError
from iotrial.store.model import PowerCuts
from iotrial.store.records import to_json

KIND = "power-cuts"
#: event kind: what was not cut, and why
NOT_CUT = "not-cut"
_decode = msgspec.json.Decoder(PowerCuts).decode


def text_of(record: PowerCuts) -> str:
    """Return the text of the event."""
    return to_json(asdict(record))


def of_text(text: str) -> PowerCuts:
    """Return the record in the text of an event. Raises StoreError if it holds none, or one that contradicts itself."""
    try:
        record = _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreError("holds a damaged record: power cuts of another shape") from error
    if any(count > record.points for count in record.bad) or record.most_lost > record.acknowledged:
        raise StoreError("holds a damaged record: more power cuts did harm than were made")
    return record
