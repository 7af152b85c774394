"""The stages of ``iotrial best``: a search of large spaces, a race, and the confirmation of its winner on fresh blocks.

Each stage is an ordinary trial. This module decides what the next one compares; ``iotrial.cli.verbs.best`` runs it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from iotrial.design.refine import WITHOUT
from iotrial.report.best import advised, confirming_effects, harmed
from iotrial.report.safety import NO_RISKS, Risks
from iotrial.stats.model import Effect, ObservedBlock, Race
from iotrial.stats.race import race_loss
from iotrial.stats.spec import Spec
from iotrial.study.model import TODAY, DesignKind, Level, Setting, Study
from iotrial.tune.space import Choice, Space

#: combinations that race at once; a larger space is searched first
MOST_ARMS = 16
#: of one round of a search: new proposals, the best so far that are measured again, and blocks
NEW, AGAIN, ROUND_BLOCKS = 5, 2, 4
#: proposals of a whole search
MOST_PROPOSED = 64
#: shares of the time for the search and for the race; the rest is for the confirmation
SEARCH_SHARE, RACE_SHARE = 0.35, 0.6
#: of that rest, for a winner of several settings: if some are not shown to contribute, the others are confirmed without them
CONFIRM_SHARE = 0.7
TOGETHER = "all together"
#: of a confirmation, if the race has used nearly all of the margin: so small that nothing is shown to be within it
LEAST_MARGIN = 1e-5


@dataclass(frozen=True, slots=True)
class Stage:
    """One trial: the choices that it compares by label, today's first, and its design.

    ``margin``: relative; None for that of the whole search.
    """

    choices: Mapping[str, Choice]
    levels: tuple[Level, ...]
    design: DesignKind
    margin: float | None = None


def race_stage(space: Space, choices: list[Choice]) -> Stage:
    """Return the race of these choices against today's settings."""
    labelled = space.labelled([space.today, *(choice for choice in choices if any(choice))])
    levels = tuple(space.bundle(choice, label) for label, choice in labelled.items())
    return Stage(labelled, levels, DesignKind.RACE)


def confirmation(space: Space, winner: Choice) -> Stage:
    """Return the confirmation of a winner: today's settings, the winner, and the winner without each setting, in this order.

    A setting that another one needs is left out together with the other.
    """
    changed = space.changed(winner)
    name = space.label(winner) if len(changed) == 1 else TOGETHER
    labelled: dict[str, Choice] = {TODAY: space.today, name: winner}
    if len(changed) > 1:
        for place in changed:
            lacking = list(winner)
            for at, one in enumerate(space.dimensions):
                if at == place or (one.only is not None and one.only[0] == place):
                    lacking[at] = 0
            labelled[f"{WITHOUT}{space.dimensions[place].name}"] = tuple(lacking)
    levels = tuple(space.bundle(choice, label) for label, choice in labelled.items())
    return Stage(labelled, levels, DesignKind.CONFIRM)


def with_margin_left(
    stage: Stage, raced: Stage, race: Race, spec: Spec, blocks: Sequence[ObservedBlock]
) -> Stage:
    """Return a confirmation with the part of the margin that the race before it has not used.

    The race has shown that none of its arms beats the winner by more than a part of the margin. A setting may be left out
    if that costs less than the rest. A race that ended early promises nothing about its other arms, so all of the margin
    is left.
    """
    if not race.over:
        return stage
    labels = {choice: label for label, choice in raced.choices.items()}
    _, winner, *lacking = stage.choices.values()
    spent = race_loss(spec, blocks, labels[winner], [labels[one] for one in lacking if one in labels])
    left = math.expm1(math.log1p(spec.margin) - spent)
    return replace(stage, margin=max(LEAST_MARGIN, left))


@dataclass(frozen=True, slots=True)
class Kept:
    """A setting of the winner: its dimension, the effect of leaving it out (None if the winner has only this one), whether it
    is recommended, and whether it is shown to contribute."""

    place: int
    without: Effect | None
    needed: bool
    shown: bool


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What a confirmation found. ``better``: the winner is shown to be better than today's settings.

    ``kept``: the settings of the winner, each with the effect of leaving it out. ``effect``: the recommended ones against
    today's, or the winner if none is (``report.best.advised``).
    """

    winner: Choice
    effect: Effect
    better: bool
    kept: tuple[Kept, ...]

    @property
    def choice(self) -> Choice | None:
        """The settings to use; None for today's."""
        return self._only({one.place for one in self.kept if one.needed})

    @property
    def partial(self) -> bool:
        """Whether the winner is better, but no measured part of it has evidence for each of its settings."""
        return self.better and self.choice is None

    @property
    def contributing(self) -> Choice | None:
        """The settings that the winner is shown to need, to be confirmed without the others; None if there are none."""
        return self._only({one.place for one in self.kept if one.shown})

    def _only(self, places: set[int]) -> Choice | None:
        if not self.better or not places:
            return None
        return tuple(level if at in places else 0 for at, level in enumerate(self.winner))


def confirmed(
    space: Space, stage: Stage, study: Study, effects: Sequence[Effect], measured: Risks = NO_RISKS
) -> Confirmed | None:
    """Return what the confirmation found; None if it has no effect of the winner.

    A winner that lost or corrupted data in power cuts (``measured``) is not better, unless what it risks was named.
    """
    whole, others = confirming_effects(effects, TODAY)
    if whole is None:
        return None
    winner = stage.choices[whole.level]
    without = {one.level: one for one in others}
    advice = advised(study, effects, measured)
    better = whole.conclusion.improves and harmed(effects, study, measured) is None

    def within(place: int, settings: Sequence[Setting]) -> bool:
        return bool(set(settings) & set(space.dimensions[place].levels[winner[place]].settings))

    return Confirmed(
        winner,
        advice.against if better else whole,
        better,
        tuple(
            Kept(
                place,
                without.get(f"{WITHOUT}{space.dimensions[place].name}"),
                within(place, advice.kept),
                within(place, advice.contributing),
            )
            for place in space.changed(winner)
        ),
    )
