"""``iotrial fleet run``: run a study on every host of the user's own Dask cluster."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec import Meta

from iotrial.cli.consent import ask_consent, show_intent
from iotrial.cli.finish import EXIT_INVALID
from iotrial.cli.fleet_view import fleet_view, table
from iotrial.cli.options import GroupedCommand, in_group, json_option, study_options, with_options
from iotrial.cli.output import tell, warn
from iotrial.cli.run_request import find_study, request_of, resolve_study, sampling_period
from iotrial.design.plan import new_seed
from iotrial.documents import Amount, JsonDocument, JsonObject, json_text
from iotrial.errors import IotrialError, RequestError
from iotrial.fleet.cluster import Cluster, ip_of
from iotrial.fleet.collect import Collector
from iotrial.fleet.conduct import FleetConductor, Phase
from iotrial.fleet.order import FLAGS, VALUES, Order, Record, Scheduler
from iotrial.paths import store_path
from iotrial.runner.planning import default_folder
from iotrial.runner.refusals import check_trust
from iotrial.runner.signals import Held
from iotrial.store import Store
from iotrial.study.catalogue import is_shipped
from iotrial.study.model import TYPICAL

if TYPE_CHECKING:
    from iotrial.cli.run_request import RunRequest
    from iotrial.fleet.conduct import FleetProgress
    from iotrial.study.model import Study

#: names of the parameters of options that can be given several times
_SEVERAL = {"set": "sets", "condition": "conditions", "place": "places"}
#: options that only make sense on one machine
_REFUSED = ("device", "erase", "discard_contents", "discard_contents_of", "copy_from", "like")

_file = click.Path(exists=True, dir_okay=False, readable=True, resolve_path=True)
_cluster = in_group("Dask cluster")
#: of ``fleet run`` and ``fleet resume``
scheduler_options = with_options(
    _cluster(
        "--scheduler",
        metavar="ADDRESS",
        help="Your Dask scheduler, such as tls://10.0.0.1:8786 (default: as Dask is configured).",
    ),
    _cluster("--tls-ca", type=_file, help="Certificate of the authority (default: as Dask is configured)."),
    _cluster("--tls-cert", type=_file, help="Certificate of this client."),
    _cluster("--tls-key", type=_file, help="Its key."),
)


def scheduler_of(values: dict[str, Any]) -> Scheduler:
    """Take the scheduler out of the values of options. Raises RequestError unless all files of TLS are named, or none."""
    files = [values.pop(name) for name in ("tls_ca", "tls_cert", "tls_key")]
    if any(files) and not all(files):
        raise RequestError("--tls-ca, --tls-cert and --tls-key belong together: name all three, or none")
    return Scheduler(values.pop("scheduler") or "", tuple(files) if any(files) else ())


@click.command("run", cls=GroupedCommand)
@click.argument("study", required=False)
@scheduler_options
@study_options
@click.option(
    "--sample",
    metavar="PERIOD",
    help="Sample processors, page cache and device during runs at this interval (10ms to 1min).",
)
@json_option
def command(study: str | None, as_json: bool, **values: Any) -> int:
    """Run a study on every host of your Dask cluster: one trial per host, one verdict over all.

    Each host needs a Dask worker with this version of iotrial. Everyone who may use the cluster can run programs on its
    hosts.
    """
    record, chosen, request = fleet_of(study, values, scheduler_of(values))
    consented(chosen, request)
    return conducted(record, as_json=as_json)


def _not_on_a_fleet(what: str) -> RequestError:
    return RequestError(f"{what} is not possible on a fleet", hint="run it on each machine separately")


def fleet_of(
    study: str | None, values: Mapping[str, Any], scheduler: Scheduler
) -> tuple[Record, Study, RunRequest]:
    """Build a new fleet from the options. Raises RequestError and its kin, before anything is changed, for
    what a fleet cannot do."""
    for name in _REFUSED:
        if values.get(name):
            raise _not_on_a_fleet(f"--{name.replace('_', '-')}")
    sampling_period(values.get("sample"))
    chosen, request = find_study(study, request_of({**values, "places": (), "erase": ()}))
    if "device" in (request.lab, chosen.lab.kind):
        raise _not_on_a_fleet("a device lab")
    other = next((r for r in chosen.responses if r.statistic != TYPICAL), None)
    if other is not None:
        raise _not_on_a_fleet(f"{chosen.name}: the {other.statistic} of {other.name}")
    shipped = is_shipped(chosen)
    # the user consents here once for all hosts; on the hosts the study stays untrusted
    values = {**values, **({} if chosen.trusted else {"trust": True, "foreign": True})}
    order = Order(
        fleet=uuid.uuid4().hex,
        host="unnamed",
        seed=request.seed or new_seed(),
        study=chosen.name if shipped else "",
        text="" if shipped else chosen.text,
        options={name: words for name in VALUES if (words := _words(values[_SEVERAL.get(name, name)]))},
        flags=tuple(name for name in FLAGS if values[name.replace("-", "_")]),
    )
    order.check()
    return Record(order, chosen.name, request.seed is not None, scheduler), chosen, request


def consented(chosen: Study, request: RunRequest) -> None:
    """Show a study that is not shipped, once for the whole fleet, and ask for consent to somebody else's
    commands."""
    if is_shipped(chosen):
        return
    check_trust(chosen, trust=request.trust)
    try:
        resolved = resolve_study(chosen, request)
        show_intent(resolved, default_folder(resolved, None), ())
        tell("This happens on every host of the fleet.", err=True)
    except IotrialError as error:
        tell(f"Cannot work out on this machine what a host would do ({error.message}).", err=True)
        tell("Every host of the fleet gets this study:", err=True)
        tell(chosen.text, err=True)
    ask_consent(chosen, trust=request.trust)


def conducted(record: Record, *, as_json: bool) -> int:
    """Run a fleet, new or resumed, print how it ended, and return the exit status."""
    cluster = Cluster(record.scheduler)
    if not cluster.address.startswith("tls://") and ip_of(cluster.address) not in ("127.0.0.1", "localhost"):
        warn(f"{cluster.address} uses no TLS: everyone who reaches it can run programs on its hosts")
    with Store.open(store_path()) as store, Held() as held, fleet_view(quiet=as_json) as view:
        collector = Collector(store, record.id, record.name, seed_chosen=record.seed_chosen)
        record.write()
        view.say(f"fleet {record.id}: {record.name}")
        conductor = FleetConductor(cluster, record, collector, view, stopped=lambda: held.pending is not None)
        try:
            progress = conductor.run()
        except IotrialError as error:
            error.hint = error.hint or f"`iotrial fleet resume {record.id[:8]}` goes on"
            raise
    _say(progress, as_json=as_json)
    return status_of(progress) if held.pending is None else 128 + held.pending


def status_of(progress: FleetProgress) -> int:
    """Return 0 if every host finished, 1 if one failed, was left out or was stopped, otherwise 3 if one is
    invalid."""
    phases = {host.phase for host in progress.hosts}
    if phases & {Phase.FAILED, Phase.LEFT_OUT, Phase.STOPPED} or not phases:
        return 1
    return EXIT_INVALID if Phase.INVALID in phases else 0


class HostTrial(JsonObject, frozen=True):
    """The trial of a host in this store."""

    number: int
    id: str


class Host(JsonObject, frozen=True):
    """One host."""

    name: str
    state: Phase
    blocks: Annotated[int, Meta(ge=0, description="finished blocks that this store has")]
    trial: HostTrial | None
    said: Annotated[str | None, Meta(description="what went wrong there")]
    not_put_back: Annotated[int, Meta(ge=0, description="entries in the host's journal")]


class Fleet(JsonObject, frozen=True):
    """How the fleet ended."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    study: str
    elapsed_s: Amount
    hosts: list[Host]


class FleetRun(JsonDocument, frozen=True):
    """iotrial fleet run --json, iotrial fleet resume --json"""

    fleet: Fleet


def fleet_run(progress: FleetProgress) -> FleetRun:
    """Build the document of ``--json``."""
    hosts = [
        Host(
            host.name,
            host.phase,
            host.blocks,
            None if host.trial is None else HostTrial(host.trial, host.trial_id),
            host.said or None,
            host.left,
        )
        for host in progress.hosts
    ]
    return FleetRun(Fleet(progress.fleet, progress.study, round(progress.elapsed_s, 3), hosts))


def _say(progress: FleetProgress, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(fleet_run(progress)))
        return
    for line in table(progress, width=80):
        tell(line)
    short = progress.fleet[:8]
    if any(host.trial is not None for host in progress.hosts):
        tell(f"`iotrial report NUMBER` shows one host, `iotrial fleet report {short}` all of them together.")
    if any(host.phase in (Phase.STOPPED, Phase.LEFT_OUT) for host in progress.hosts):
        tell(f"What was measured is kept; `iotrial fleet resume {short}` goes on.")


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value if isinstance(value, tuple | list) else [value] if value else []))
