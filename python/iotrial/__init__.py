"""iotrial: storage tuning on trial.

Does this storage setting make this work faster, on this machine, by how much, and how sure are we?

From Python: ``iotrial.studies()``, ``iotrial.trials()``, ``iotrial.trial("last")``, ``iotrial.open("a.iotrial")``,
``iotrial.run("files/permissions", "--time", "2m")``, ``iotrial.compare_blocks(reference, level)``,
``iotrial.audit("numbers.csv")``. Each name is imported on first use. Examples are in docs/library.md.
"""

from __future__ import annotations

TYPE_CHECKING = (
    False  # type checkers assume True for this name; importing it from typing would dominate the import time
)
if TYPE_CHECKING:
    from iotrial.errors import IotrialError, RequestError, StoreError, StudyError, UnknownName
    from iotrial.library.auditing import Audit, Comparison, Comparisons, audit
    from iotrial.library.blocks import BlockComparison, compare_blocks
    from iotrial.library.effects import Control, Controls, Effect, Effects
    from iotrial.library.findings import Claim, Claims, Evidence, EvidenceTable
    from iotrial.library.opening import Trials, open, trial, trials
    from iotrial.library.running import run, try_
    from iotrial.library.runs import Contrast, Contrasts, Run, Runs
    from iotrial.library.study import Factor, Studies, Study, find_study, read_study, studies
    from iotrial.library.trial import Trial
    from iotrial.stats.model import Conclusion, Verdict

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "BlockComparison",
    "Claim",
    "Claims",
    "Comparison",
    "Comparisons",
    "Conclusion",
    "Contrast",
    "Contrasts",
    "Control",
    "Controls",
    "Effect",
    "Effects",
    "Evidence",
    "EvidenceTable",
    "Factor",
    "IotrialError",
    "RequestError",
    "Run",
    "Runs",
    "StoreError",
    "Studies",
    "Study",
    "StudyError",
    "Trial",
    "Trials",
    "UnknownName",
    "Verdict",
    "__version__",
    "audit",
    "compare_blocks",
    "find_study",
    "open",
    "read_study",
    "run",
    "studies",
    "trial",
    "trials",
    "try_",
]

#: module of each public name, for lazy import; the imports above are for type checkers only and never run
_FROM = {
    **dict.fromkeys(("IotrialError", "RequestError", "StoreError", "StudyError", "UnknownName"), "errors"),
    **dict.fromkeys(("Conclusion", "Verdict"), "stats.model"),
    **dict.fromkeys(("Audit", "Comparison", "Comparisons", "audit"), "library.auditing"),
    **dict.fromkeys(("BlockComparison", "compare_blocks"), "library.blocks"),
    **dict.fromkeys(("Control", "Controls", "Effect", "Effects"), "library.effects"),
    **dict.fromkeys(("Claim", "Claims", "Evidence", "EvidenceTable"), "library.findings"),
    **dict.fromkeys(("Trials", "open", "trial", "trials"), "library.opening"),
    **dict.fromkeys(("Contrast", "Contrasts", "Run", "Runs"), "library.runs"),
    **dict.fromkeys(("run", "try_"), "library.running"),
    **dict.fromkeys(
        ("Factor", "Studies", "Study", "find_study", "read_study", "studies"), "library.study"
    ),
    **dict.fromkeys(("Trial",), "library.trial"),
}  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name on first use and cache it in the module."""
    where = _FROM.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{where}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
