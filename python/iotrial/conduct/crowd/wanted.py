"""How many clients a study has at most, and what of the user's links cannot work with it."""

from __future__ import annotations

from iotrial.conduct.crowd.links import Links
from iotrial.conduct.works import driver
from iotrial.errors import RequestError
from iotrial.study.model import Study, Workload


def most_clients(study: Study) -> int:
    """The most clients of any run; 0 where no work has any."""
    return max((_most(study, workload) for workload in study.workloads), default=0)


def _most(study: Study, workload: Workload) -> int:
    declared = driver(workload.work).clients(workload.work)
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
