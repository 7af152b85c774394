"""``iotrial run``: run a trial and report its result."""

from __future__ import annotations

from typing import Any

import click

from iotrial.cli.finish import Outputs
from iotrial.cli.options import (
    GroupedCommand,
    fail_option,
    force_option,
    html_option,
    json_option,
    markdown_option,
    study_options,
)
from iotrial.cli.rehearse_run import refuse_what_needs_numbers, rehearsed
from iotrial.cli.run_request import find_study, request_of, sampling_period
from iotrial.cli.trial_run import run_trial
from iotrial.errors import RequestError

#: options of earlier versions, for many hosts
_GONE = ("fleet", "hosts", "ssh_config", "keys", "grace")


@click.command("run", cls=GroupedCommand)
@click.argument("study", required=False)
@study_options
@html_option
@markdown_option
@force_option
@fail_option
@click.option(
    "--sample",
    metavar="PERIOD",
    help="Sample processors, page cache and device during runs at this interval (10ms to 1min), for the HTML report.",
)
@click.option(
    "--rehearse",
    is_flag=True,
    help="Only check whether the study can run here: one shortened block, nothing measured or stored.",
)
@click.option("--fleet", hidden=True)
@click.option("--hosts", hidden=True)
@click.option("--ssh-config", hidden=True)
@click.option("--keys", hidden=True)
@click.option("--grace", hidden=True)
@json_option
def command(
    study: str | None,
    html: str | None,
    markdown: str | None,
    force: bool,
    fail_if: tuple[str, ...],
    sample: str | None,
    rehearse: bool,
    as_json: bool,
    **values: Any,
) -> int:
    """Run a study on this machine: one of the catalogue, a TOML file, or that of a packed trial (--like)."""
    for name in _GONE:
        if values.pop(name) is not None:
            from iotrial.cli.verbs.fleet import INSTEAD

            raise RequestError(
                f"--{name.replace('_', '-')}: a trial on many hosts is `iotrial fleet run`", hint=INSTEAD
            )
    outputs = Outputs(as_json=as_json, html=html, markdown=markdown, fail_if=fail_if, force=force)
    outputs.check()
    request = request_of(values)
    sample_s = sampling_period(sample)
    chosen, request = find_study(study, request)
    if rehearse:
        refuse_what_needs_numbers(
            {"--html": html, "--markdown": markdown, "--fail-if": fail_if, "--sample": sample}
        )
        return rehearsed(chosen, request, as_json=as_json)
    return run_trial(chosen, request, outputs, sample_s=sample_s)
