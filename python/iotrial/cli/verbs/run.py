"""``iotrial run``: run a trial and report its result."""

from __future__ import annotations

from typing import Any

import click

from iotrial.cli.finish import Outputs
from iotrial.cli.fleet_run import conducted, consented, fleet_of, reached_by
from iotrial.cli.options import (
    GroupedCommand,
    fail_option,
    force_option,
    html_option,
    in_group,
    json_option,
    markdown_option,
    study_options,
)
from iotrial.cli.rehearse_run import refuse_what_needs_numbers, rehearsed
from iotrial.cli.run_request import find_study, request_of, sampling_period
from iotrial.cli.trial_run import run_trial
from iotrial.errors import RequestError

in_fleet = in_group("On many hosts")


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
@in_fleet(
    "--fleet",
    metavar="ADDRESS",
    help="Run on all hosts of the fleet with this scheduler, such as tls://10.0.0.1:8786.",
)
@in_fleet(
    "--hosts",
    metavar="HOSTS",
    help="Run on these hosts by SSH, separated by commas: a,root@b,c:2222. They need iotrial installed.",
)
@in_fleet(
    "--ssh-config",
    metavar="FILE",
    envvar="IOTRIAL_SSH_CONFIG",
    help="For --hosts: ssh configuration file instead of your own (default: $IOTRIAL_SSH_CONFIG).",
)
@in_fleet("--keys", metavar="FOLDER", help="Folder with the fleet's keys, from `iotrial fleet keys`.")
@in_fleet(
    "--grace",
    metavar="DURATION",
    help="Stop a host's trial after the coordinator has been silent for this long (default: 2min).",
)
@json_option
def command(
    study: str | None,
    html: str | None,
    markdown: str | None,
    force: bool,
    fail_if: tuple[str, ...],
    sample: str | None,
    rehearse: bool,
    fleet: str | None,
    hosts: str | None,
    ssh_config: str | None,
    keys: str | None,
    grace: str | None,
    as_json: bool,
    **values: Any,
) -> int:
    """Run a study on this machine: one of the catalogue, a TOML file, or that of a packed trial (--like)."""
    if fleet is not None or hosts is not None:
        whole = {
            **values,
            "html": html,
            "markdown": markdown,
            "fail_if": fail_if,
            "sample": sample,
            "rehearse": rehearse,
        }
        record, chosen, request = fleet_of(
            study, whole, reached_by(fleet, keys, hosts, ssh_config), grace=grace
        )
        consented(chosen, request)
        return conducted(record, as_json=as_json, new=True)
    _refuse_without_fleet(keys, grace)
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


def _refuse_without_fleet(keys: str | None, grace: str | None) -> None:
    for option, value in (("--keys", keys), ("--grace", grace)):
        if value is not None:
            raise RequestError(
                f"{option} needs a fleet",
                hint="give its scheduler with --fleet or its hosts with --hosts, or omit the option",
            )
