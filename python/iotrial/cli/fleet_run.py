"""``run --fleet`` and ``fleet resume``: build a fleet from the options, run it, and report how it ended."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from msgspec import Meta

from iotrial.cli.consent import ask_consent, show_intent
from iotrial.cli.finish import EXIT_INVALID
from iotrial.cli.fleet_view import fleet_view, table
from iotrial.cli.output import tell
from iotrial.cli.run_request import find_study, quantity_of, request_of, resolve_study, sampling_period
from iotrial.design.plan import new_seed
from iotrial.documents import Amount, JsonDocument, JsonObject, json_text
from iotrial.errors import IotrialError, RequestError
from iotrial.fleet.batch import Lost
from iotrial.fleet.collect import Collector
from iotrial.fleet.conduct import FleetConductor, Pace, Phase
from iotrial.fleet.hosts import HOSTS, KEYS, SCHEDULER, SSH_CONFIG, DaskHosts, reached_by_scheduler
from iotrial.fleet.interim import MOST_TAKEN_UP, Interim
from iotrial.fleet.keys import STDIN, Keys, Part
from iotrial.fleet.order import GRACE_S, LONGEST_GRACE_S, Order, Record
from iotrial.fleet.ssh import SshHosts, reached_by_ssh, ssh_ways
from iotrial.paths import store_path
from iotrial.runner.planning import default_folder
from iotrial.runner.refusals import check_trust
from iotrial.runner.signals import Held
from iotrial.store import Store
from iotrial.study.catalogue import is_shipped
from iotrial.study.model import TYPICAL
from iotrial.units import parse_duration

if TYPE_CHECKING:
    from iotrial.cli.run_request import RunRequest
    from iotrial.fleet.conduct import Hosts, Standing
    from iotrial.study.model import Study

SHORTEST_LOST_S = 20.0

#: option parameters that go into an order for each host, with the name they have there
_ORDER_OPTIONS = {
    "sets": "set", "conditions": "condition", "lab": "lab", "disk": "disk", "size": "size", "on": "on",
    "places": "place", "time": "time", "blocks": "blocks", "margin": "margin", "alpha": "alpha",
    "sample": "sample",
}  # fmt: skip
_FLAGS = {
    "full": "full",
    "no_controls": "no-controls",
    "no_account": "no-account",
    "no_check": "no-check",
    "no_stop": "no-stop",
    "precise": "precise",
    "trust": "trust",
    "foreign": "foreign",
}
#: options that only make sense on one machine or for one report
_REFUSED = {
    "device": "--device: a spare disk has to be confirmed on its own machine",
    "erase": "--erase: a spare disk has to be confirmed on its own machine",
    "discard_contents": "--discard-contents: a spare disk has to be confirmed on its own machine",
    "discard_contents_of": "--discard-contents-of: a spare disk has to be confirmed on its own machine",
    "like": "--like: name the study itself; each host draws its own plan",
    "html": "--html: each host has its own report",
    "markdown": "--markdown: each host has its own report",
    "fail_if": "--fail-if: each host has its own verdict",
    "rehearse": "--rehearse: rehearse on one host first",
}


def fleet_of(
    study: str | None, values: Mapping[str, Any], reached: Mapping[str, str], *, grace: str | None
) -> tuple[Record, Study, RunRequest]:
    """Build a new fleet from the options. Raises RequestError and its kin, before anything is changed, for
    what a fleet cannot do."""
    for name, why in _REFUSED.items():
        if values.get(name):
            raise RequestError(f"not possible on a fleet: {why}")
    sampling_period(values.get("sample"))
    chosen, request = find_study(study, request_of({**values, "places": (), "erase": ()}))
    if "device" in (request.lab, chosen.lab.kind):
        raise RequestError(
            "a device lab overwrites a disk, and cannot run on a fleet",
            hint="run it on each machine separately, with --device and --erase; or --lab image",
        )
    other = next((r for r in chosen.responses if r.statistic != TYPICAL), None)
    if other is not None:
        raise RequestError(
            f"{chosen.name}: a fleet averages typical runs, and cannot combine the {other.statistic} of "
            f"{other.name} over hosts",
            hint="run it on each machine separately, or leave out the statistic of the response",
        )
    grace_s = quantity_of("--grace", grace, parse_duration) or GRACE_S
    if not 5 <= grace_s <= LONGEST_GRACE_S:
        raise RequestError(f"--grace {grace}: expected 5 s to 24 h")
    shipped = is_shipped(chosen)
    # the user consents here once for all hosts; on the hosts the study stays untrusted
    values = {**values, **({} if chosen.trusted else {"trust": True, "foreign": True})}
    order = Order(
        fleet=uuid.uuid4().hex,
        host="unnamed",
        seed=request.seed or new_seed(),
        study=chosen.name if shipped else "",
        text="" if shipped else chosen.text,
        options={said: _words(values[name]) for name, said in _ORDER_OPTIONS.items() if values.get(name)},
        flags=tuple(flag for name, flag in _FLAGS.items() if values.get(name)),
        grace_s=grace_s,
    )
    order.check()
    return Record(order, chosen.name, request.seed is not None, reached), chosen, request


def reached_by(
    fleet: str | None, keys: str | None, hosts: str | None, ssh_config: str | None
) -> dict[str, str]:
    """Return how the hosts are reached: through a scheduler that they join, or by name over SSH."""
    if hosts is None:
        assert fleet is not None
        return reached_by_scheduler(fleet, keys)
    if fleet is not None or keys is not None:
        raise RequestError("--hosts (by SSH) excludes --fleet and --keys (by a scheduler)")
    return reached_by_ssh(hosts, ssh_config)


def keys_of(folder: str, part: Part) -> Keys:
    """Read the keys of ``--keys``: from a folder, or from standard input. Raises RequestError."""
    return (
        Keys.from_line(sys.stdin.buffer)
        if folder == STDIN
        else Keys.in_folder(Path(folder).expanduser(), part)
    )


def hosts_of(record: Record, *, new: bool, as_json: bool) -> Hosts:
    """Connect to the hosts of a fleet.

    If the fleet is ``new``, raises RequestError when a named host cannot take part in its present state; no
    trial has begun by then.
    """
    reached = record.reached
    if SCHEDULER in reached:
        return DaskHosts(reached[SCHEDULER], keys_of(reached[KEYS], Part.CLIENT))
    if HOSTS not in reached:
        raise RequestError(f"no hosts are reached by {', '.join(map(str, reached)) or 'nothing'}")
    hosts = SshHosts(ssh_ways(reached[HOSTS], reached.get(SSH_CONFIG)))
    try:
        for error in (hosts.check() if new else hosts.wait()).values():
            if isinstance(error, Lost) and not as_json:
                tell(f"{error.message}; trying again while the others measure", err=True)
    except BaseException:
        hosts.close()
        raise
    return hosts


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


def conducted(record: Record, *, as_json: bool, new: bool = False) -> int:
    """Run a fleet, new or resumed, print how it ended, and return the exit status."""
    hosts = hosts_of(record, new=new, as_json=as_json)
    try:
        with Store.open(store_path()) as store, Held() as held:
            collector = Collector(store, record.id, record.name, seed_chosen=record.seed_chosen)
            record.write()
            with fleet_view(quiet=as_json) as view:
                view.say(f"fleet {record.id}: {record.name}")
                # a host that has used up its grace period has restored everything; only after that stop
                # waiting for it
                pace = Pace(leave_out_s=max(SHORTEST_LOST_S, 1.5 * record.order.grace_s))
                interim = None if as_json else _interim(store, collector)
                conductor = FleetConductor(
                    hosts,
                    record,
                    collector,
                    view,
                    stopped=lambda: held.pending is not None,
                    pace=pace,
                    interim=interim,
                )
                try:
                    standing = conductor.run()
                except IotrialError as error:
                    error.hint = error.hint or f"`iotrial fleet resume {record.id[:8]}` goes on"
                    raise
            _say(standing, as_json=as_json)
    finally:
        hosts.close()
    if held.pending is not None:
        return 128 + held.pending
    return status_of(standing)


def _interim(store: Store, collector: Collector) -> Interim | None:
    """Return the interim means over hosts, filled with the data in the store; None if that is too much to
    read again."""
    interim = Interim()
    trials = collector.trials()
    if sum(collector.position(host).blocks for host in trials) > MOST_TAKEN_UP:
        return None
    try:
        for host, (number, _) in trials.items():
            interim.take_up(host, store.data(number))
    except IotrialError:  # the report on that trial shows the error
        return None
    return interim


def status_of(standing: Standing) -> int:
    """Return 0 if every host finished, 1 if one failed, was left out or was stopped, otherwise 3 if one is
    invalid."""
    phases = {host.phase for host in standing.hosts}
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
    """iotrial run --fleet --json, iotrial fleet resume --json"""

    fleet: Fleet


def fleet_run(standing: Standing) -> FleetRun:
    """Build the document of ``--json``."""
    hosts = [
        Host.of(
            host,
            state=host.phase,
            trial=None if host.trial is None else HostTrial(host.trial, host.trial_id or ""),
            said=host.said or None,
            not_put_back=host.left,
        )
        for host in standing.hosts
    ]
    return FleetRun(Fleet(standing.fleet, standing.study, round(standing.elapsed_s, 3), hosts))


def _say(standing: Standing, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(fleet_run(standing)))
        return
    for line in table(standing, width=80):
        tell(line)
    short = standing.fleet[:8]
    if any(host.trial is not None for host in standing.hosts):
        tell(f"`iotrial report NUMBER` shows one host, `iotrial fleet report {short}` all of them together.")
    if any(host.phase in (Phase.STOPPED, Phase.LEFT_OUT) for host in standing.hosts):
        tell(f"What was measured is kept; `iotrial fleet resume {short}` goes on.")


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, tuple | list) else (str(value),)
