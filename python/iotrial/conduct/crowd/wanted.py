"""How many clients a study has at most, and what of the user's links cannot work with it."""

from __future__ import annotations

from iotrial.conduct.crowd.links import Links
from iotrial.errors import RequestError
from iotrial.study.model import Study, Workload
from iotrial.study.work import HasClients


def most_clients(study: Study) -> int:
    """The most clients of any run; 0 where no work has any."""
    return max((_most(study, workload) for workload in study.workloads), default=0)


def _most(study: Study, workload: Workload) -> int:
    declared = workload.work.client_count() if isinstance(workload.work, HasClients) else 0
    if not declared:
        return 0
    varied = [
        int(setting.value)
        for setting in study.settings
        if setting.knob == "work.option" and ("option", "clients") in setting.options
    ]
    return max(varied, default=declared)


def check_links(study: Study, links: Links) -> None:
    """RequestError for links of a study without clients."""
    if links and not most_clients(study):
        option = "--client" if links.clients else "--server-probe"
        raise RequestError(
            f"{option}: no workload of the study has clients",
            hint='such a workload has kind = "clients" (`iotrial show --workload clients`)',
        )
    for workload in study.workloads:
        work = workload.work
        if links.clients and isinstance(work, HasClients) and work.calls_clients and work.client_count():
            _check_called(workload.name, work, links)


def _check_called(name: str, work: HasClients, links: Links) -> None:
    """A program here calls the clients, each of which works in a folder of its host's."""
    nameless = next((link.name for link in links.clients if not link.address), None)
    if nameless is not None:
        raise RequestError(
            f"--client {nameless}: workload {name} calls its clients, and this one has no address",
            hint=f"say --client {nameless}@ADDRESS=COMMAND: its server is bound to that address",
        )
    if not work.client_folder():
        raise RequestError(
            f"workload {name}: its clients are on other hosts, and no folder is named that they work in",
            hint='add folder = "/mnt/nas" to the workload',
        )
    if work.client_count() > len(links.clients):
        raise RequestError(
            f"workload {name} has {work.client_count()} clients, and --client names {len(links.clients)}",
            hint="two fio servers of one host would work on the same files",
        )
