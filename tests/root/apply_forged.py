"""Run ``iotrial apply`` in a guest on a made-up trial, in which the settings on the command line are faster.

apply_forged.py ID KNOB[:OPTION=VALUE]=REFERENCE,LEVEL... -- OPTIONS OF APPLY
"""

from __future__ import annotations

import sys

from accounts import with_evidence
from report_fixtures import document, effect, study

from iotrial.cli import main
from iotrial.cli.verbs import apply
from iotrial.report.document import Document
from iotrial.stats.model import Verdict
from iotrial.study.model import Factor, Level, Role, Setting
from values import replace


def factor(text: str) -> Factor:
    """Return a factor of two levels."""
    address, _, levels = text.rpartition(":")
    reference, level = levels.split(",")
    knob, _, option = address.partition("/")
    options = ((option.partition("=")[0], option.partition("=")[2]),) if option else ()
    made = tuple(Level(value, (Setting(knob, value, options),)) for value in (reference, level))
    return Factor(
        knob.rpartition(".")[2] + option.rpartition("=")[2].replace(".", "_"),
        Role.TREATMENT,
        made,
        reference,
        (reference, level),
    )


def forged(identity: str, texts: list[str]) -> Document:
    """Return the trial."""
    factors = tuple(map(factor, texts))
    effects = [
        effect(
            Verdict.FASTER,
            0.8,
            0.75,
            0.85,
            factor=one.name,
            level=one.levels[1].label,
            reference=one.levels[0].label,
        )
        for one in factors
    ]
    of = replace(study(treatment=factors[0], conditions=()), factors=factors)
    made = document(effects, of=of, runs={"conditions": ({},)})
    header = replace(made.trial.header, id=identity, host={})
    return replace(made, data=replace(made.data, trial=replace(made.trial, header=header)))


if __name__ == "__main__":
    at = sys.argv.index("--")
    trial = forged(sys.argv[1], sys.argv[2:at])
    apply.document_at = lambda _: trial  # type: ignore[assignment]
    apply.account_here = lambda: with_evidence(trial)  # type: ignore[assignment]
    sys.argv = ["iotrial", "apply", *sys.argv[at + 1 :]]
    main()
