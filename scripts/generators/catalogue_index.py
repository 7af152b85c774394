"""The index of the shipped studies, from which `iotrial list` answers (``study.catalogue``)."""

from __future__ import annotations

import json
from zlib import crc32

from iotrial.report.safety import worst
from iotrial.study.catalogue import CATALOGUE, look_up, names


def catalogue_index() -> str:
    """Return what is listed of each study, and the checksum of the file that it is from."""
    index = {}
    for name in names():
        study = look_up(name)
        index[name] = {
            "crc32": crc32((CATALOGUE / f"{name}.toml").read_bytes()),
            "title": study.title,
            "question": study.question,
            "time_s": study.budget.time_s,
            "safety": worst(study).value,
        }
    return json.dumps(index, indent=0, ensure_ascii=False) + "\n"
