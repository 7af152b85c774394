"""The long part of a request: a trial analysed and drawn, or packed. Done in the worker's process."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from iotrial.errors import RequestError, StoreError
from iotrial.report.analysed import Analysed
from iotrial.report.opening import document_of
from iotrial.store import Store
from iotrial.store.packed import read_packed

MOST_PACKED = 256 << 20


@dataclass(frozen=True, slots=True)
class Made:
    """A report in each format, as text in UTF-8."""

    html: str
    json: bytes
    markdown: bytes

    @property
    def size(self) -> int:
        """Bytes, about."""
        return len(self.html) + len(self.json) + len(self.markdown)


def made(store: Store, number: int) -> Made:
    """A trial in all formats. Raises what ``document_of`` raises."""
    from iotrial.report.jsonreport import report_json
    from iotrial.report.render import html_report, markdown_report

    document = document_of(store, number)
    return Made(
        html=html_report(document),
        json=json.dumps(report_json(document), indent=1).encode(),
        markdown=markdown_report(document).encode("utf-8", "replace"),
    )


def compared(trials: Sequence[Analysed]) -> Made:
    """A comparison; RequestError where these trials share nothing."""
    from iotrial.report.comparing import compare
    from iotrial.report.comparison_blocks import comparison_html, comparison_markdown
    from iotrial.report.comparison_json import comparison_json

    comparison = compare(trials)
    return Made(
        html=comparison_html(comparison),
        json=json.dumps(comparison_json(comparison), indent=1, allow_nan=False).encode(),
        markdown=comparison_markdown(comparison).encode("utf-8", "replace"),
    )


def packed(store: Store, number: int) -> bytes:
    """A packed trial, read back before it is handed out. StoreError where it could not be imported, or is very large."""
    with tempfile.TemporaryFile() as file:
        store.pack(number, file)
        size = file.seek(0, 2)
        if size > MOST_PACKED:
            raise StoreError(
                f"trial {number} is too large for a download ({size:,} bytes)",
                hint=f"iotrial export {number}",
            )
        file.seek(0)
        try:
            for _ in read_packed(file, f"trial {number}, packed"):
                pass
        except RequestError as error:
            raise StoreError(f"trial {number} cannot be packed: {error.message}", hint=error.hint) from error
        file.seek(0)
        return file.read()
