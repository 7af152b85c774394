"""Tables of facts: equal conditions share one, differences are listed, and all formats use the same words."""

from __future__ import annotations

import io
import re

import pytest
from factorial_trials import SEED, stored
from rich.console import Console

from iotrial.design.plan import Plan
from iotrial.report.blocks import Note
from iotrial.report.conditions import Conditions
from iotrial.report.document import Document, build_document
from iotrial.report.facts import FactRow, FactTable, facts_section
from iotrial.report.jsonreport import report_json
from iotrial.report.render import html_report, markdown_report, print_report
from iotrial.stats.analyse import Spec, analyse
from iotrial.stats.model import Observation, ObservedBlock
from iotrial.store.checks import by_name, by_word
from iotrial.store.model import BlockEnd, RunRecord, TrialData
from iotrial.study.reader import read_study
from values import replace

STUDY = """
[study]
name = "own/facts"
question = "Which calls note an access?"
[[factor]]
name = "atime"
knob = "mount.atime"
levels = ["strictatime", "noatime"]
[[factor]]
name = "state"
knob = "file.atime_state"
levels = ["stale", "fresh", "day-old"]
role = "condition"
[[workload]]
name = "calls"
kind = "command"
argv = ["calls"]
[[workload.output]]
name = "changed"
json = "changed"
scale = "difference"
[[workload.output]]
name = "calls"
json = "calls"
fact = true
"""
BLOCKS = 10


def found(state: str, option: str, block: int) -> dict[str, str]:
    read = "no" if option == "noatime" else "once" if state == "fresh" else "each time"
    return {"read": read, "mmap": read, "stat": "no" if (state, block) != ("fresh", 3) else "once"}


@pytest.fixture(scope="module")
def document() -> Document:
    study = read_study(STUDY, "mine.toml", trusted=False)
    plan = Plan(study, SEED)
    runs, ends, blocks = [], [], []
    for condition in plan.conditions:
        for index in range(BLOCKS):
            block = plan.block(condition, index)
            seen = []
            for run in block.runs:
                arm, at_s = run.arm, float(len(runs))
                words = found(condition.levels["state"], arm.treatment["atime"], index)
                responses = {"changed": float(sum(word != "no" for word in words.values()))}
                record = RunRecord(
                    condition.key,
                    index,
                    run.slot,
                    arm.name,
                    arm.kind.value,
                    arm.treatment,
                    at_s,
                    None,
                    responses,
                )
                runs.append(replace(record, checks={"facts": by_word(words)}))
                seen.append(Observation(arm.name, arm.kind, arm.treatment, run.slot, at_s, responses))
            ends.append(BlockEnd(condition.key, index, index, block.controls))
            blocks.append(ObservedBlock(condition.key, index, tuple(seen)))
    data = TrialData(stored(study), tuple(blocks), tuple(runs), tuple(ends))
    return build_document(data, analyse(Spec.from_plan(plan), data.blocks))


def test_conditions_that_agree_share_a_table_and_what_varies_is_counted(document: Document) -> None:
    alike, apart = document.facts
    assert [condition.levels["state"] for condition in alike.conditions] == ["stale", "day-old"]
    assert alike.columns == ("strictatime", "noatime")
    assert [(row.names, row.cells) for row in alike.rows] == [
        (("mmap",), ("each time", "no")),
        (("read",), ("each time", "no")),
        (("stat",), ("no", "no")),
    ]
    assert [row.names for row in alike.groups] == [("mmap", "read"), ("stat",)]
    assert (alike.least, alike.most, alike.varying) == (BLOCKS, BLOCKS, 0)
    assert alike.certainty == "each cell the same in all of its 10 runs"
    assert apart.rows[2].cells == ("no (9 of 10), once (1 of 10)",) * 2
    assert apart.varying == 2


def test_text_markdown_page_and_json_have_the_same_words(document: Document) -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    print_report(document, console, full=True)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"mmap and 1 more +each time +no", text)
    assert "mmap and 1 more  read" in text
    assert "All settings: stat no. Each cell the same in all of its 10 runs." in text
    assert not re.search(r"^stat ", text, re.MULTILINE)
    marked = markdown_report(document)
    assert "| mmap and 1 more | each time | no |" in marked
    assert "**mmap and 1 more**: read" in marked
    page = html_report(document)
    assert '<td class="l">read</td><td class="l">each time</td><td class="l"><small>no</small></td>' in page
    report = report_json(document)["trial"]["facts"]  # type: ignore[index]
    assert report[0]["rows"] == {
        "read": ["each time", "no"],
        "mmap": ["each time", "no"],
        "stat": ["no", "no"],
    }
    assert report[0]["runs"] == [BLOCKS, BLOCKS]


def test_names_of_a_later_table_are_those_above_without_a_few() -> None:
    """The calls of one file system, and of another where one of them does something else."""
    first, *others = names = ("aio", "mmap", "pread", "read", "readv")
    condition = Conditions(read_study(STUDY, "mine.toml", trusted=False)).of_levels(
        {"state": "stale"}, "calls"
    )

    def of(*some: str) -> FactTable:
        rows = (FactRow((first, *some), ("each time", "no")), FactRow(("stat",), ("once", "no")))
        return FactTable((condition,), ("strictatime", "noatime"), rows, 10, 10, 0)

    (section,) = facts_section([of(*others), of("mmap", "read", "readv"), of("mmap")])
    notes = [(one.label, one.text) for one in section.blocks if isinstance(one, Note)]
    assert notes == [
        ("aio and 4 more", "mmap, pread, read, readv"),
        ("aio and 3 more", f"the {len(names)} above without pread"),
        ("aio and 1 more", "mmap"),
    ]


def test_words_are_kept_by_word_and_read_by_name() -> None:
    facts = {"read": "once", "stat": "no", "mmap": "once"}
    assert by_word(facts) == {"once": ["read", "mmap"], "no": ["stat"]}
    assert by_name(by_word(facts)) == facts
    for strange in (None, 3, {"once": 3}, {"once": [1]}, {3: ["read"]}):
        assert by_name(strange) == {}
