"""Proposals for large spaces: Optuna suggests combinations, given how those measured so far did.

Optuna only proposes. All that it proposes in a round is measured in the same randomised blocks, and what it finds counts
only after a race and a confirmation on fresh blocks.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from iotrial.errors import MissingTool
from iotrial.tune.space import Choice, Space

#: proposals that may repeat what is known before a round is cut short
_PATIENCE = 50


class Proposals:
    """An Optuna study over a space. Each setting is tried alone first; then the sampler (multivariate TPE) proposes."""

    def __init__(self, space: Space, seed: int) -> None:
        if find_spec("optuna") is None:
            raise MissingTool.extra("search among more than 16 combinations", "optuna", "tune")
        import optuna  # a second to import, and only a large space needs it

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        with warnings.catch_warnings():
            # the options for settings that act together, and for those that depend on others
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, group=True, n_startup_trials=0, constant_liar=True
            )
        self._study: Any = optuna.create_study(sampler=sampler, direction="minimize")
        self._distribution: Any = optuna.distributions.CategoricalDistribution
        self._finished: Any = optuna.trial.create_trial
        self._waiting = list(space.single_changes())
        self._known: dict[Choice, float] = {}
        self._failed: set[Choice] = set()

    @property
    def exhausted(self) -> bool:
        """Whether every possible combination has been proposed."""
        return self._space.size <= len(self._known)

    def leave_out(self, failed: Collection[Choice]) -> None:
        """Propose no choice with a level that failed alone, and none of ``failed`` again."""
        self._space = self._space.without(failed)
        self._failed.update(failed)

    def ask(self, count: int) -> list[Choice]:
        """Return up to ``count`` choices that were not measured before."""
        found: list[Choice] = []
        while len(found) < count and self._waiting:
            found.append(self._waiting.pop(0))
        for _ in range(_PATIENCE):
            if len(found) >= count:
                break
            trial = self._study.ask()
            choice = self._suggested(trial)
            new = choice not in self._known and choice not in self._failed | {*found} and any(choice)
            if new and self._space.possible(choice):
                found.append(choice)
        return found

    def tell(self, measured: Mapping[Choice, float]) -> None:
        """Report the effects of a round against today's settings: natural logarithms, negative if better."""
        for choice, effect in measured.items():
            self._known[choice] = effect
            self._study.add_trial(
                self._finished(
                    params=dict(self._parameters(choice)),
                    distributions={name: self._of(name) for name, _ in self._parameters(choice)},
                    value=effect,
                )
            )

    def best(self, count: int) -> list[Choice]:
        """Return the choices with the lowest effects, and the best change of one setting, which may be as good.

        So few blocks leave the order of close ones to chance.
        """
        lowest = [choice for _, choice in sorted((v, c) for c, v in self._known.items() if any(c))]
        single = [choice for choice in lowest if len(self._space.changed(choice)) == 1]
        return list(dict.fromkeys([*lowest[:count], *single[:1]]))

    def _suggested(self, trial: Any) -> Choice:
        choice = [0] * len(self._space.dimensions)
        for place in self._in_order():
            if self._space.exists(place, choice):
                levels = range(len(self._space.dimensions[place].levels))
                choice[place] = trial.suggest_categorical(str(place), list(levels))
        return tuple(choice)

    def _in_order(self) -> list[int]:
        """Return the dimensions so that one that depends on another comes after it."""
        return sorted(
            range(len(self._space.dimensions)),
            key=lambda place: self._space.dimensions[place].only is not None,
        )

    def _parameters(self, choice: Choice) -> Iterator[tuple[str, int]]:
        for place, level in enumerate(choice):
            if self._space.exists(place, choice):
                yield str(place), level

    def _of(self, name: str) -> Any:
        return self._distribution(list(range(len(self._space.dimensions[int(name)].levels))))
