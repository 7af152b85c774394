"""Things of the lab that are no knobs and may outlive the conductor: paths, loop devices, processes.

Like a knob, each kind records an entry in the journal before the thing is made, and knows how to undo
that entry: in a fresh process, from the entry alone, any number of times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from iotrial.lab.journal import Entry, Journal
from iotrial.lab.knob import Undone
from iotrial.lab.target import Target


class LabObject(ABC):
    """One kind of thing. Subclasses in ``iotrial.lab.objects`` are found by the registry.

    ``first``: undone before everything else, because while it lives it could change what was put back.
    """

    name: ClassVar[str]
    first: ClassVar[bool] = False

    @abstractmethod
    def undo(self, target: Target, entry: Entry, journal: Journal) -> Undone:
        """Take away what the entry describes, and prove that it is gone.

        Raises TargetError or LabError where it cannot be; the entry is kept then.
        """
