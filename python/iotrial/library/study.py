"""Studies as values: shipped ones, one in a file, one in a text."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from iotrial.library.display import Card, Displayed, text
from iotrial.library.table import Column, Table, fields
from iotrial.report.notation import percent
from iotrial.study.catalogue import entries, find

if TYPE_CHECKING:
    from iotrial.study.model import Study as Declaration


@dataclass(frozen=True, slots=True)
class Factor:
    """One factor of a study. ``role`` is "treatment" (its levels are compared with ``reference``) or
    "condition" (crossed with the treatments, each level reported separately); ``default`` are the levels that
    run unless others are selected."""

    name: str
    role: str
    levels: tuple[str, ...]
    reference: str
    default: tuple[str, ...]


class Study(Displayed):
    """A study: its question, factors and workloads. Immutable.

    Made by ``studies``, ``find_study``, ``read_study`` and ``Trial.study``.
    """

    def __init__(
        self,
        name: str,
        title: str,
        question: str,
        read: Callable[[], Declaration],
        *,
        of_trial: bool = False,
        of_text: bool = False,
    ) -> None:
        self.name = name
        self.title = title
        self.question = question
        self._read = read
        #: as in a trial: levels may have been selected, and somebody else may have written its commands
        self.of_trial = of_trial
        #: the caller gave its text, so its commands run as the caller's own
        self.of_text = of_text

    @cached_property
    def declaration(self) -> Declaration:
        """The whole declaration, as used inside iotrial. Raises StudyError if its text is not a valid study."""
        return self._read()

    @property
    def why(self) -> str:
        """Why the question matters, and what is wrong with published results."""
        return self.declaration.why

    @property
    def text(self) -> str:
        """Its TOML."""
        return self.declaration.text

    @property
    def margin(self) -> float:
        """The smallest relative effect that matters, .03 for 3 %."""
        return self.declaration.margin

    @property
    def alpha(self) -> float:
        """The error level shared by all its primary effects."""
        return self.declaration.alpha

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Its factors, as declared."""
        return tuple(
            Factor(
                one.name, one.role.value, tuple(lev.label for lev in one.levels), one.reference, one.default
            )
            for one in self.declaration.factors
        )

    @property
    def responses(self) -> tuple[str, ...]:
        """The names of its primary responses."""
        return tuple(dict.fromkeys(one.name for one in self.declaration.responses if one.primary))

    @property
    def claims(self) -> tuple[str, ...]:
        """The published claims that it is compared with, in their own words."""
        return tuple(one.text for one in self.declaration.claims)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Study) and self.declaration == other.declaration

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<{text(Card(f'Study {self.name}: {self.question}'))}>"

    def __str__(self) -> str:
        return text(self._card())

    def _card(self) -> Card:
        def levels(one: Factor) -> str:
            marked = (
                f"{label} (reference)" if one.role == "treatment" and label == one.reference else label
                for label in one.levels
            )
            return ", ".join(marked)

        factors = self.factors
        line = f"Margin {percent(self.margin)}, alpha {self.alpha:g}; measured: {', '.join(self.responses)}."
        return Card(
            title=f"Study {self.name}",
            lead=self.question,
            lines=(line,),
            heads=("factor", "role", "levels"),
            rows=tuple((one.name, one.role, levels(one)) for one in factors),
        )


class Studies(Table[Study]):
    """Studies by name."""

    noun = "study"
    heads = ("name", "question")
    most_shown = 200

    def _card(self) -> Card:
        card = super()._card()
        title = "1 study" if len(self) == 1 else f"{len(self):,} studies"
        return Card(title, heads=card.heads, rows=card.rows, left_out=card.left_out)

    def _cells(self, row: Study) -> tuple[str, ...]:
        return row.name, row.question

    def _columns(self) -> list[Column[Study]]:
        return [
            *fields("text", "name", "title", "question"),
        ]


def studies() -> Studies:
    """Return the shipped studies, by name. Only the head of each is read until more is needed."""
    return Studies(_shipped(one.name, one.title, one.question) for one in entries())


def find_study(study: str | os.PathLike[str], *, trusted: bool = False) -> Study:
    """Return the study with this name in the catalogue, or in this TOML file.

    ``trusted``: commands in somebody else's file may run, including a shell or as root, as with ``--trust``;
    your own file does not need it. Raises UnknownName if it is neither name nor file, StudyError if the file
    is not a valid study.
    """
    return of_declaration(find(os.fspath(study), trusted=trusted))


def read_study(toml: str, *, trusted: bool = False) -> Study:
    """Return the study in this text.

    It is treated as the caller's own: its commands run without confirmation, as the caller. ``trusted``:
    including a shell, or as root. Raises StudyError, with the line, if it is not a valid study.
    """
    # a list of studies does not need it
    from iotrial.study.reader import read_study as read

    found = read(toml, "text", trusted=trusted)
    return Study(found.name, found.title, found.question, lambda: found, of_text=True)


def of_declaration(found: Declaration, *, of_trial: bool = False) -> Study:
    """Wrap a study that has already been read."""
    return Study(found.name, found.title, found.question, lambda: found, of_trial=of_trial)


def _shipped(name: str, title: str, question: str) -> Study:
    return Study(name, title, question, lambda: find(name))
