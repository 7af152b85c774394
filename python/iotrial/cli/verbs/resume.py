"""``iotrial resume``: go on with a trial that was interrupted, with the same plan and seed."""

from __future__ import annotations

from typing import Any

import click

from iotrial.cli.asking import quantity_of
from iotrial.cli.options import as_json as json_option


@click.command("resume")
@click.argument("trial", default="last")
@click.option("--html", metavar="FILE", help="Where the HTML report goes (default: the state folder).")
@click.option("--time", metavar="DURATION", help="A new budget of measuring in all, such as 10m.")
@click.option(
    "--trust", is_flag=True, help="Run the commands of a study from elsewhere, also a shell or as root."
)
@json_option
def command(trial: str, html: str | None, time: str | None, trust: bool, as_json: bool) -> int:
    """Go on with an interrupted trial."""
    import os

    from iotrial.cli.consent import ask_consent, show_intent
    from iotrial.cli.ending import conclude, refuse_missing_folder
    from iotrial.cli.watching import watcher_for
    from iotrial.conduct.crowd.links import from_json
    from iotrial.conduct.resolve import resolve
    from iotrial.conduct.start import consent_of, located_of, resume
    from iotrial.conduct.trial import Limits
    from iotrial.design.plan import Plan
    from iotrial.errors import RequestError
    from iotrial.paths import store_path
    from iotrial.store import Store
    from iotrial.store.model import TrialState
    from iotrial.store.packed.consistency import check_stored
    from iotrial.units import parse_duration

    refuse_missing_folder(html)
    wanted_s = quantity_of("--time", time, parse_duration)
    store = Store.open(store_path())
    data = store.data(trial)
    stored = data.trial
    if stored.imported is not None:
        raise RequestError(
            f"trial {stored.number} was measured on another machine, and cannot go on here",
            hint="`iotrial run --like FILE` runs the study and the plan of a packed trial as a trial of its own",
        )
    if "fleet" in stored.header.options:
        raise RequestError(
            f"trial {stored.number} is measured on a host of a fleet, and cannot go on here",
            hint="`iotrial fleet resume` goes on with all hosts",
        )
    if stored.state not in (TrialState.INTERRUPTED, TrialState.FAILED):
        raise RequestError(
            f"trial {stored.number} is {stored.state.value}: there is nothing to resume",
            hint=f"`iotrial report {stored.number}` shows it",
        )
    check_stored(data)
    options: dict[str, Any] = dict(stored.header.options)
    resolved = resolve(
        stored.header.study,
        root=os.geteuid() == 0,
        lab=str(options["lab"]),
        asked=set(options.get("asked", ())),
        trust=trust or stored.header.study.trusted,
        consent=consent_of(stored.header),
        located=located_of(stored.header),
        links=from_json(options),
    )
    if "consented" not in options and not resolved.study.trusted:  # begun before consent was asked for
        show_intent(resolved, str(options.get("folder", "")), ())
        ask_consent(resolved.study, trust=trust)
    plan = Plan(stored.header.study, stored.header.seed, controls=bool(options.get("controls", True)))
    time_s = wanted_s or float(options["time_s"])
    limits = Limits(time_s, int(options["blocks"]), stop_when_decided=not options.get("no_stop", False))
    with watcher_for(plan, quiet=as_json, store=store.path) as watcher:
        ended = resume(resolved, plan, store, data, limits, watcher)
    return conclude(store, stored.header.id, as_json=as_json, html=html, fail_if=(), signal=ended.signal)
