"""A trial with attacks in every text: on terminals, rich, Markdown, HTML, SVG, JSON and file names.

It is built from frozen values and bypasses the checks of the study reader, because a stored or imported trial
never went through them. A number makes each text unique, so that the report's own logic still works.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from report_fixtures import controls, diagnostics, effect, factor, measured, study, trial

from iotrial.report.document import Document, build_document
from iotrial.stats.model import Analysis, Verdict, VoidCount
from iotrial.store.model import TrialData, TrialState
from iotrial.study.model import Claim, Role, Study
from values import replace

ATTACKS = (
    "\x1b[2J\x1b]0;owned\x07\x1b]8;;http://evil.example/\x1b\\link",
    "\x9b31m\x85\x00\x08\x7f\r",
    "two\nlines\u2028three\u2029four",
    "\u202egnp.exe\u2066\u200b\u200f\ufeff\u00ad\U000e0041",
    "[bold red]red[/] [link=http://evil.example/]x[/link] [/nothing]",
    "<script>document.title='owned'</script>",
    "\"><img src=http://127.0.0.1:9/x onerror=document.title='owned'>",
    "</style></svg></title></pre><svg onload=document.title='owned'>",
    "![x](http://evil.example/x.png) [y](javascript:alert(1)) <http://evil.example>",
    "| a | b `code` ``` ~~~ | @octocat #123 GH-1 www.evil.example http://evil.example",
    "$\\frac{ $x^2_ $$ \\mathdefault{",
    "{{ 7*7 }} {% raw %} ${x} %s {0} {x!r}",
    "url(#a) id=\"b\" #010101 xlink:href=\"http://evil.example\" <!-- --> ]]> &lt;&#x3c;",
    "../../../../tmp/owned",
    "\ud800 lone \udfff",
    "a" * 3000,
)  # fmt: skip

#: characters that no report may contain unescaped, in any format (line breaks are the report's own)
STEERING = frozenset(
    [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x0A]
    + [chr(code) for code in (*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A))]
    + ["\ufeff", "\u00ad", "\U000e0041", "\ud800", "\udfff"]
)

_NUMBERS = count()


def attacks() -> Iterator[str]:
    """Yield the attacks in turn, forever, each with a number that makes it unique."""
    while True:
        for attack in ATTACKS:
            yield f"{attack} {next(_NUMBERS)}"


def hostile_study() -> Study:
    """Return a study with attacks in every field that can hold them."""
    text = attacks()
    treatment = factor(next(text), [next(text) for _ in ATTACKS], role=Role.TREATMENT)
    condition = factor(next(text), [next(text) for _ in range(4)], role=Role.CONDITION)
    labels = [level.label for level in treatment.levels]
    claims = [
        Claim(
            attack, next(text), treatment.name, label, labels[0], 0.5, note=next(text),
            condition={condition.name: condition.levels[0].label},
        )
        for attack, label in zip(ATTACKS, labels[1:], strict=False)
    ]  # fmt: skip
    made = study(
        name=next(text), title="".join(ATTACKS), question="".join(ATTACKS), treatment=treatment,
        conditions=[condition], claims=claims,
    )  # fmt: skip
    return replace(made, why="\n".join(ATTACKS), text="\n".join(ATTACKS), origin="".join(ATTACKS))


def hostile_document() -> Document:
    """Return the document of a trial of that study."""
    of = hostile_study()
    text = attacks()
    treatment, condition = of.treatment_factors[0], of.condition_factors[0]
    labels = [level.label for level in treatment.levels]
    conditions = [{condition.name: level.label} for level in condition.levels]
    blocks, runs, ends = measured(of, conditions=conditions, blocks=3, void={(0, 1): next(text)})
    runs = tuple(
        replace(
            run,
            failure=next(text) if n % 50 == 0 else run.failure,
            evidence={**run.evidence, **dict.fromkeys(ATTACKS, 2.0)},
            histograms={**run.histograms, ATTACKS[n % len(ATTACKS)]: [[100, 3], [200, 4]]},
        )
        for n, run in enumerate(runs)
    )
    effects = [
        effect(
            verdict, *numbers, factor=treatment.name, level=label, reference=labels[0], condition=where, reason=next(text),
            response=response, primary=response == "wall", unit=unit, detectably=next(text),
        )
        for where in conditions
        for label, (verdict, *numbers), response, unit in zip(
            labels[1:],
            [(Verdict.FASTER, 0.5, 0.4, 0.6), (Verdict.INCONCLUSIVE, 1.0, None, 1.2)] * len(labels),
            ["wall", "wall", next(text)] * len(labels),
            ["s", next(text), "s"] * len(labels),
            strict=False,
        )
    ]  # fmt: skip
    stored = trial(of, state=TrialState.FAILED, reason="".join(ATTACKS))
    header = replace(
        stored.header,
        id=next(text), seed=next(text), version=next(text),
        lab={"kind": next(text), **dict.fromkeys(ATTACKS, "".join(ATTACKS))},
        host={attack: {attack: [attack, attack]} for attack in ATTACKS},
        options={"argv": ["iotrial", "run", *ATTACKS], "controls": True},
    )  # fmt: skip
    analysis = Analysis(
        effects=tuple(effects),
        controls=controls(conditions),
        void=(VoidCount(next(text), next(text), 2),),
        diagnostics=diagnostics(conditions),
        valid=True,
        notes=tuple(ATTACKS),
        invalid_reasons=(),
    )
    return build_document(TrialData(replace(stored, header=header), blocks, runs, ends), analysis)
