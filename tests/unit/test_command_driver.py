"""Probe jobs of commands: placeholders are filled in wherever the study check accepts them."""

from __future__ import annotations

from iotrial.study.work import JobContext, Step
from iotrial.workloads.command import CommandWork

WORK = CommandWork(
    steps=(Step("copy", ("cp", "{x}", "{out}")), Step("pack", ("tar", "-c{x}", "."))),
    cwd="{out}/{x}",
    stdin="{x} and {y}\n",
    environment=(("WITH", "-{x}"), ("WITHOUT", "{dir}")),
)


def test_placeholders_are_filled_in_arguments_folder_input_and_environment() -> None:
    fields = WORK.probe_job(JobContext(arguments={"{x}": "one", "{y}": "two"}))
    assert fields["steps"] == [
        {"name": "copy", "argv": ["cp", "one", "{out}"]},
        {"name": "pack", "argv": ["tar", "-cone", "."]},
    ]
    assert fields["cwd"] == "{out}/one"
    assert fields["stdin"] == "one and two\n"
    environment = fields["environment"]
    assert isinstance(environment, dict)
    assert (environment["WITH"], environment["WITHOUT"]) == ("-one", "{dir}")


def test_no_text_in_which_a_placeholder_is_accepted_is_left_as_it_was() -> None:
    held = [text for text in WORK.texts() if "{x}" in text]
    job = str(WORK.probe_job(JobContext(arguments={"{x}": "one", "{y}": "two"})))
    assert len(held) == 5
    assert "{x}" not in job
    assert "{y}" not in job


def test_what_a_knob_sets_in_the_environment_wins_over_what_the_study_says() -> None:
    fields = WORK.probe_job(JobContext(environment={"WITH": "knob"}))
    environment = fields["environment"]
    assert isinstance(environment, dict)
    assert environment["WITH"] == "knob"
