"""Command-line options shared by several verbs. ``iotrial.cli.run_request`` converts them to typed values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
markdown_option = click.option(
    "--markdown",
    metavar="FILE",
    help="Write Markdown there, for a pull request (-: standard output, instead of text).",
)

full_report = click.option("--full", is_flag=True, help="Everything, instead of one screen.")


def study_options(function: F) -> F:
    """Add the study options of ``plan`` and ``run`` to a command."""
    options = [
        click.option(
            "--set",
            "sets",
            multiple=True,
            metavar="FACTOR=LEVEL,LEVEL",
            help="Only these levels of a factor; program=PATH,PATH: programs of a workload that takes them by path.",
        ),
        click.option(
            "--condition",
            "conditions",
            multiple=True,
            metavar="NAME=LEVEL,LEVEL",
            help="Run under these levels of a condition (or workload=...); NAME=all for every one.",
        ),
        click.option("--full", is_flag=True, help="Every level of every condition, every workload."),
        click.option(
            "--like",
            metavar="FILE",
            help="The study and the plan of a packed trial, instead of STUDY (--seed: another plan).",
        ),
        click.option("--lab", metavar="KIND", help="directory, image, device or guest."),
        click.option(
            "--disk", metavar="MODEL", help="The modelled disk of an image lab, or none (docs/labs.md)."
        ),
        click.option("--device", metavar="PATH", help="The spare disk of a device lab; with --erase."),
        click.option(
            "--erase",
            multiple=True,
            metavar="[PLACE=]NAME",
            help="Its serial number or WWN: consent to overwrite that disk.",
        ),
        click.option(
            "--discard-contents",
            is_flag=True,
            help="The disk may hold data; signatures, mounts and users are refused all the same.",
        ),
        click.option(
            "--discard-contents-of",
            multiple=True,
            metavar="PLACE",
            help="The same for the disk of a place.",
        ),
        click.option(
            "--size", metavar="SIZE", help="Size of the lab, such as 24GiB, instead of the study's."
        ),
        click.option("--on", metavar="FOLDER", help="Folder whose disk is used."),
        click.option(
            "--place",
            "places",
            multiple=True,
            metavar="PLACE=FOLDER",
            help="Where a place of the study lies: a folder, or a spare disk (then with --erase PLACE=NAME).",
        ),
        click.option("--time", metavar="DURATION", help="Budget of measuring, such as 5m."),
        click.option(
            "--blocks", type=click.IntRange(1), metavar="N", help="At most so many blocks of each condition."
        ),
        click.option("--margin", metavar="PERCENT", help="Smallest effect that matters, such as 2%."),
        click.option(
            "--alpha",
            type=click.FloatRange(0, 0.5, min_open=True),
            metavar="LEVEL",
            help="Error level of the whole trial, such as 0.05.",
        ),
        click.option(
            "--seed", metavar="N", help="A number, or the 32 digits of an earlier trial; recorded as chosen."
        ),
        click.option("--no-controls", is_flag=True, help="Leave the control arms out; the verdict says so."),
        click.option(
            "--no-account",
            is_flag=True,
            help="Do not count system calls and requests in repetitions that are not timed.",
        ),
        click.option(
            "--precise",
            is_flag=True,
            help="Measure the size of a large effect too, and not only that it exceeds the margin.",
        ),
        click.option("--no-stop", is_flag=True, help="Spend the whole budget even when all is decided."),
        click.option(
            "--foreign", is_flag=True, help="Take the study for somebody else's, although the file is yours."
        ),
        click.option(
            "--trust",
            is_flag=True,
            help="Run the commands of a study from elsewhere, also a shell or as root.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function
