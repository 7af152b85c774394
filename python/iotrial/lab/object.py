"""Things other than knobs that the lab creates and that may outlive the conductor: paths, loop devices, processes.

Like a knob, each kind records a journal entry before it creates the thing. Its undo needs only that entry: it works in a new
process, and any number of times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from iotrial.knobs.knob import Undone
from iotrial.lab.journal import Entry, Journal
from iotrial.lab.target import Target


class LabObject(ABC):
    """One kind of thing. The registry finds subclasses in ``iotrial.lab.objects``.

    ``first``: undone before everything else, because while it exists it could change what has been restored.
    """

    name: ClassVar[str]
    first: ClassVar[bool] = False

    @abstractmethod
    def undo(self, target: Target, entry: Entry, journal: Journal) -> Undone:
        """Remove what the entry describes, and verify that it is gone.

        Raises TargetError or LabError if that fails; the entry is then kept.
        """
