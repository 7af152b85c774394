"""``iotrial run``: run a trial and report its result."""

from __future__ import annotations

from typing import Any

import click

from iotrial.cli.finish import Outputs
from iotrial.cli.fleet_run import conducted, consented, fleet_of, reached_by
from iotrial.cli.options import GroupedCommand, in_group, markdown_option, study_options
from iotrial.cli.options import as_json as json_option
from iotrial.cli.rehearse_run import refuse_what_needs_numbers, rehearsed
from iotrial.cli.run_request import find_study, request_of, sampling_period
from iotrial.cli.trial_run import run_trial
from iotrial.errors import RequestError

in_fleet = in_group("On many hosts")


@click.command("run", cls=GroupedCommand, short_help="Put a study on trial on this machine.")
@click.argument("study", required=False)
@study_options
@click.option("--html", metavar="FILE", help="Where the HTML report goes (default: the state folder).")
@markdown_option
@click.option(
    "--fail-if",
    type=click.Choice(["slower", "inconclusive"]),
    multiple=True,
    help="Exit with status 4 where a main effect is slower (also probably slower), or undecided.",
)
@click.option(
    "--sample",
    metavar="PERIOD",
    help="Processors, page cache and device within each run, every so often (10ms to 1min), for the HTML report.",
)
@click.option(
    "--rehearse",
    is_flag=True,
    help="Only try, in seconds, whether it can run here: one block, cut down; nothing is measured or stored.",
)
@in_fleet(
    "--fleet",
    metavar="ADDRESS",
    help="On every host of the fleet whose scheduler is there, such as tls://10.0.0.1:8786.",
)
@in_fleet(
    "--hosts",
    metavar="HOSTS",
    help="On each of these hosts, by SSH: names with commas, as in a,root@b,c:2222. They have iotrial installed.",
)
@in_fleet(
    "--ssh-config",
    metavar="FILE",
    envvar="IOTRIAL_SSH_CONFIG",
    help="For --hosts, a configuration of ssh instead of your own (default: $IOTRIAL_SSH_CONFIG).",
)
@in_fleet("--keys", metavar="FOLDER", help="The fleet's keys, of `iotrial fleet keys`.")
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
    """Put a study on trial on this machine: one of the catalogue, a file, or that of a packed trial (--like)."""
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
    outputs = Outputs(as_json=as_json, html=html, markdown=markdown, fail_if=fail_if)
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
                f"{option} is for a fleet",
                hint="name its scheduler by --fleet, its hosts by --hosts, or leave it out",
            )
