"""Works that make a file of their own: its size, and refusal of knobs that have no effect on it.

Such a knob would be a factor without effect, found equivalent at some cost.
"""

from __future__ import annotations

from iotrial.errors import LARGER_LAB, RequestError
from iotrial.knobs.declaration import Stage
from iotrial.knobs.work import FILE_SIZE, RECORD_SIZE
from iotrial.lab import registry
from iotrial.study.model import Study
from iotrial.study.places import DISK_LABS
from iotrial.units import format_bytes

SIZES = (FILE_SIZE, RECORD_SIZE)
#: Share of the lab's size that files can use; the file system keeps at most the rest for itself.
SHARE_FOR_FILES = 0.8
#: The same of files that a run shows to fit: without the reserve.
SHARE_FOR_PROGRAMS = 0.9


def largest_own_file(study: Study) -> int:
    """Return the bytes of the largest file that a run makes for itself, and of the files that programs lay out."""
    sizes = [setting for setting in study.settings if setting.knob == FILE_SIZE]
    wanted: list[dict[str, str]] = [{}] + [{FILE_SIZE: setting.value} for setting in sizes]
    largest = max(w.work.own_bytes(values) for w in study.workloads for values in wanted)
    return largest + sum(_laid_out(study).values())


def _laid_out(study: Study) -> dict[str, int]:
    """Return the bytes of all files that the programs of the study lay out: workloads share those of one name."""
    found: dict[str, int] = {}
    for workload in study.workloads:
        try:
            own = workload.work.own_files(study.settings)
        except RequestError as error:
            raise RequestError(f"workload {workload.name}: {error.message}", hint=error.hint) from None
        found |= {name: max(size, found.get(name, 0)) for name, size in own.items()}
    return found


def check_own_files(study: Study, *, lab: str, lab_bytes: int) -> None:
    """Raise RequestError for settings and sizes that do not fit works with a file of their own.

    These are a size that no workload has, settings of files that a matrix does not touch, and a file that the
    lab cannot hold.
    """
    laid_out = sum(_laid_out(study).values())
    if lab in DISK_LABS and laid_out > SHARE_FOR_PROGRAMS * lab_bytes:
        raise RequestError(
            f"study {study.name}: its programs lay out files of {format_bytes(laid_out)}, "
            f"in a lab of {format_bytes(lab_bytes)}",
            hint=f"{LARGER_LAB}, at least {-(-laid_out * 5 // 4 >> 20)} MiB",
        )
    own = [workload for workload in study.workloads if workload.work.own_file]
    knobs = {setting.knob for setting in study.settings}
    if not own:
        for name in knobs & set(SIZES):
            raise RequestError(
                f"knob {name}: no workload of kind matrix runs",
                hint="use file.size for the size of the lab's files",
            )
        return
    for name in sorted(knobs):
        if registry.knob(name).stage in (Stage.FILES, Stage.CACHE) and len(own) == len(study.workloads):
            raise RequestError(
                f"knob {name}: a matrix uses its own file, which this knob does not affect",
                hint="`cold = true` in the workload makes its reads cold",
            )
    for workload in own:
        if workload.cache is not None:
            raise RequestError(
                f"workload {workload.name}: a matrix uses its own file, so its cache state cannot be prepared",
                hint="`cold = true` in the workload makes its reads cold",
            )
    largest = largest_own_file(study)
    if lab in DISK_LABS and largest > SHARE_FOR_FILES * lab_bytes:
        raise RequestError(
            f"study {study.name}: a file of {largest >> 20} MiB in a lab of {lab_bytes >> 20} MiB",
            hint=LARGER_LAB,
        )
