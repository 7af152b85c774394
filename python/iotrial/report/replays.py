"""Sentences on replays: whether they kept up with the recorded times, had all operations, and gave what was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iotrial.report.evidence import EvidenceRow
from iotrial.report.notation import counted, percent
from iotrial.study.model import Workload
from iotrial.terminal import escape
from iotrial.workloads.replay import LOST, MOST_BEHIND, ReplayWork


def on_replay(workload: Workload, evidence: Sequence[EvidenceRow]) -> Iterator[str]:
    """Warn if the runs of a replay fell behind, lacked operations, or gave other results than recorded, by their medians."""
    if not isinstance(workload.work, ReplayWork):
        return
    rows = [row for row in evidence if row.condition.workload == workload.name]
    late = max(_of(rows, "behind_share"), key=lambda row: row.value, default=None)
    if late is not None and late.value > MOST_BEHIND:
        yield (
            f"The replay fell behind the recording: {_under(late)}, {percent(late.value / 100.0)} of the operations "
            f"started more than 10 ms after their recorded time. Such a run shows the most that the machine can do, "
            f'not its response to the recorded load; use a lower speed, or timing = "closed".'
        )
    lost = max(_of(rows, LOST), key=lambda row: row.value, default=None)
    if lost is not None:
        yield (
            f"The recording lacks {counted(round(lost.value), 'operation')} that could not be recorded, and so does "
            f"the replay."
        )
    other = max(_of(rows, "other_results"), key=lambda row: row.value, default=None)
    if other is not None and other.value > 0:
        yield (
            f"The replay did not do all that was recorded: {_under(other)}, {counted(round(other.value), 'operation')} of "
            f"a run gave another result. The checks of each run name the first one."
        )


def _of(rows: Sequence[EvidenceRow], metric: str) -> Iterator[EvidenceRow]:
    return (row for row in rows if row.metric == metric)


def _under(row: EvidenceRow) -> str:
    return escape(f"under {row.treatment}{row.condition.behind}")
