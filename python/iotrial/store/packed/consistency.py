"""Checks that a packed trial's records match its plan: the same study and seed give the same runs."""

from __future__ import annotations

from dataclasses import dataclass

from iotrial.design.model import Arm, ArmKind, Condition, WashIn
from iotrial.design.plan import Plan
from iotrial.errors import RequestError, StoreError
from iotrial.store.model import BlockEnd, RunRecord, TrialData, TrialHeader, TrialState
from iotrial.store.packed.records import PackedRun, PackedState
from iotrial.store.records import washed_in
from iotrial.study.model import DesignKind

_AFTER: dict[TrialState | None, frozenset[TrialState]] = {
    None: frozenset({TrialState.RUNNING}),
    TrialState.RUNNING: frozenset(TrialState),
    TrialState.INTERRUPTED: frozenset({TrialState.RUNNING}),
    TrialState.FAILED: frozenset({TrialState.RUNNING}),
    TrialState.DONE: frozenset({TrialState.RUNNING}),  # continued
    TrialState.INVALID: frozenset(),
}


#: Cached: reading ``value`` of an enum member would take longer than all other comparisons.
_NAMES = {kind: kind.value for kind in ArmKind}


@dataclass(slots=True)
class _Block:
    """Planned size and controls of one block, and the slots (as a bitmap) and attempts seen so far."""

    arms: int
    controls: bool
    slots: int = 0
    first_attempt: int = 0
    attempts: int = 1
    ended: bool = False


class Consistency:
    """Follows the records of one trial in order. Every method raises ValueError for an impossible record."""

    def __init__(self, header: TrialHeader) -> None:
        try:
            self._plan = Plan.stored(header.study, header.seed, header.options)
        except RequestError as error:
            raise ValueError(error.message) from error
        self._conditions = {condition.key: condition for condition in self._plan.conditions}
        self._responses = {
            key: {response.name for response in self._plan.responses(condition.workload)}
            for key, condition in self._conditions.items()
        }
        self._pools = {
            key: self._plan.pool_size(header.study.workload(condition.workload))
            for key, condition in self._conditions.items()
        }
        self._blocks: dict[tuple[str, int], _Block] = {}
        self._order: tuple[tuple[str, int], tuple[Arm, ...]] = (("", -1), ())
        race = header.study.design.kind is DesignKind.RACE
        #: of a race, by condition and block: the runs of blocks that are not complete yet; None for other designs
        self._raced: dict[tuple[str, int], list[RunRecord]] | None = {} if race else None
        #: of a race, by condition: the arms of the last complete block, and its wash-in
        self._inside: dict[str, tuple[set[str], WashIn | None]] = {}
        self._state: TrialState | None = None
        self._attempts = 0
        self._attempt = 0

    def add_state(self, change: PackedState) -> None:
        if change.state not in _AFTER[self._state]:
            raise ValueError(f'the state "{change.state}" cannot follow "{self._state or "nothing"}"')
        self._state = change.state
        self._attempts += change.state is TrialState.RUNNING

    def add_run(self, packed: PackedRun) -> None:
        run = packed.run
        condition = self._condition(run.condition)
        if not max(1, self._attempt) <= packed.attempt <= self._attempts:
            raise _unplanned(run)
        self._attempt = packed.attempt
        arms = self._arms(condition, run.block)
        if self._raced is None:
            _check_arm(run, arms)
        else:  # which arms were still in the race is known when the block is complete
            self._raced.setdefault((run.condition, run.block), []).append(run)
        block = self._blocks.get((run.condition, run.block))
        if block is None:
            controls = any(arm.of_control for arm in arms)
            block = _Block(len(arms), controls, first_attempt=packed.attempt)
            self._blocks[run.condition, run.block] = block
        if block.slots >> run.slot & 1:
            raise _unplanned(run)
        block.slots |= 1 << run.slot
        if packed.attempt != block.first_attempt:
            block.attempts = 2
        if not self._responses[run.condition].issuperset(run.responses):
            raise _unplanned(run)
        pool = self._pools[run.condition]
        if run.files and not (min(run.files) >= 0 and max(run.files) < pool):
            raise _unplanned(run)

    def add_end(self, end: BlockEnd) -> None:
        self._condition(end.condition)
        block = self._blocks.get((end.condition, end.block))
        if block is not None and self._raced is not None:
            block.arms = self._check_race(end)
        if (
            block is None
            or block.slots != (1 << block.arms) - 1
            or block.ended
            or end.controls != block.controls
            or (block.attempts > 1 and not end.gap)
            or (end.void is None and end.void_level is not None)
        ):
            raise _wrong_end(end.block)
        block.ended = True

    def _check_race(self, end: BlockEnd) -> int:
        """Check a block of a race, which runs the arms of the block before but for those that left; return its size.

        A race starts again with all arms when the wash-in changes.
        """
        assert self._raced is not None
        condition = self._condition(end.condition)
        runs = self._raced.pop((end.condition, end.block), [])
        names = {arm.name for arm in self._plan.treatments}
        inside = {run.arm for run in runs} & names
        wash_in = washed_in(runs)
        before, last = self._inside.get(end.condition, (names, wash_in))
        if not inside <= (before if wash_in == last else names) or self._plan.reference.name not in inside:
            raise _wrong_end(end.block)
        self._inside[end.condition] = inside, wash_in
        arms = self._plan.order(condition, end.block, inside)
        for run in runs:
            _check_arm(run, arms)
        return len(arms)

    def forget_blocks(self) -> None:
        """Forget the blocks seen so far, if a store that already has them prevents duplicates.

        ValueError for a block that has runs and no end.
        """
        for (_, index), block in self._blocks.items():
            if not block.ended:
                raise _wrong_end(index)
        self._blocks.clear()

    def _condition(self, key: str) -> Condition:
        try:
            return self._conditions[key]
        except KeyError:
            raise ValueError("its plan has no such condition") from None

    def _arms(self, condition: Condition, index: int) -> tuple[Arm, ...]:
        key = (condition.key, index)
        if self._order[0] != key:
            self._order = (key, self._plan.order(condition, index))
        return self._order[1]


def check_stored(data: TrialData) -> None:
    """Raise StoreError if stored records cannot be those of their study and seed: damage that SQLite cannot detect."""
    try:
        consistency = Consistency(data.trial.header)
        consistency.add_state(PackedState(0.0, TrialState.RUNNING, None))
        for run in data.runs:
            consistency.add_run(PackedRun(run, 1, 0.0))
        for end in data.ends:
            consistency.add_end(end)
    except (ValueError, KeyError, OverflowError) as error:
        raise StoreError(
            f"trial {data.trial.number} is damaged: {error}",
            hint="its runs are still in the store; no verdict is given",
        ) from error


def _check_arm(run: RunRecord, arms: tuple[Arm, ...]) -> None:
    """Raise ValueError if the run is not the planned one at its slot of the block of these arms."""
    if run.slot >= len(arms):
        raise _unplanned(run)
    planned = arms[run.slot]
    if (
        run.arm != planned.name
        or run.kind != _NAMES[planned.kind]
        or dict(run.treatment) != dict(planned.treatment)
    ):
        raise _unplanned(run)


def _unplanned(run: RunRecord) -> ValueError:
    return ValueError(
        f"the run in slot {run.slot} of block {run.block} is not the one that study and seed plan there"
    )


def _wrong_end(block: int) -> ValueError:
    return ValueError(f"the end of block {block} does not match its runs and its plan")
